// What only the bindings call: the parts of the module, and what holds objects of Python.
#pragma once
#include <nanobind/nanobind.h>

namespace cosimo {
void bind_predictors(nanobind::module_ &);
void bind_guard(nanobind::module_ &);
class Builder;
void bind_steppers(nanobind::class_<Builder> &);

// A guard (guard.cpp) holds from `guard`, which gives its number, until `unguard`; `rescue` saves rows when a call exceeds its limit.
int guard(bool exits, int document, const char *kept, double limit, const nanobind::object &rescue, const char *fixed);
void unguard(int number, const nanobind::object &rescue);
}  // namespace cosimo
