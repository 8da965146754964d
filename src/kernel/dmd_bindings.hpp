#pragma once
#include <nanobind/nanobind.h>

void bind_predictors(nanobind::module_ &m);
