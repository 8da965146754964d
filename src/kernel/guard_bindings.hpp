#pragma once
#include <nanobind/nanobind.h>

namespace cosimo {
void bind_guard(nanobind::module_ &);
}
