// Units that live in Python: a plain object whose attributes are its variables, or any instance of the unit contract.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "builder.hpp"
#include "unit.hpp"

namespace cosimo {
namespace nb = nanobind;

// Exceptions become a status, so that the loop ends the same way for all units; the caller raises them again.
template <class Work>
int guarded(Unit &unit, Work work) {
    return caught(unit, [&] {
        work();
        return 0;
    });
}

inline nb::object checked(PyObject *result) {
    if (!result) throw nb::python_error();
    return nb::steal(result);
}

// Attributes are set and read, and `step` called, without any Python code of ours in between.
struct PythonObject final : Unit {
    nb::object object, instance, saved;
    nb::object step_method;
    std::vector<nb::object> input_names, output_names;

    bool needs_python() const override { return true; }
    int set(const double *c) override {
        return guarded(*this, [&] {
            for (std::size_t i = 0; i < inputs; ++i) {
                nb::object value = checked(PyFloat_FromDouble(c[i]));
                if (PyObject_SetAttr(object.ptr(), input_names[i].ptr(), value.ptr())) throw nb::python_error();
            }
        });
    }
    int step(double time, double duration, int) override {
        return guarded(*this, [&] {
            step_method(time, duration);
        });
    }
    int get(double *y) override {
        return guarded(*this, [&] {
            for (std::size_t i = 0; i < outputs; ++i) {
                nb::object value = checked(PyObject_GetAttr(object.ptr(), output_names[i].ptr()));
                y[i] = PyFloat_AsDouble(value.ptr());
                if (y[i] == -1.0 && PyErr_Occurred()) {
                    PyErr_Clear();  // said again, with the name of the output
                    nb::module_::import_("cosimo.units.python").attr("as_number")(output_names[i], value);
                }
            }
        });
    }
    int save() override {
        return guarded(*this, [&] {
            saved = instance.attr("save")();
        });
    }
    int restore() override {
        return guarded(*this, [&] {
            instance.attr("restore")(saved);
        });
    }
};

// Any other unit, through its contract: slower, but nothing is excluded.
struct PythonInstance final : Unit {
    nb::object instance, saved;
    nb::object post_method;  // of a unit on another host
    std::size_t powers = 1;
    double h = 1.0;

    bool needs_python() const override { return true; }
    bool posts() const override { return post_method.is_valid(); }
    void post(double time, double duration) override { post_method(time, duration); }
    bool stretch(double now) override {
        h = now;
        return true;
    }
    int set(const double *c) override {
        return guarded(*this, [&] {
            using View = nb::ndarray<nb::numpy, const double, nb::ndim<2>>;
            // A copy: the instance may keep it.
            auto *copy = new double[powers * inputs + 1];
            for (std::size_t i = 0; i < powers * inputs; ++i) copy[i] = c[i];
            nb::capsule owner(copy, [](void *p) noexcept { delete[] static_cast<double *>(p); });
            instance.attr("set_input")(View(copy, {powers, inputs}, owner), h);
        });
    }
    int step(double time, double duration, int) override {
        return guarded(*this, [&] {
            instance.attr("step")(time, duration);
            if (nb::object end = instance.attr("ended"); !end.is_none()) ends_at(nb::cast<double>(end));
        });
    }
    int get(double *y) override {
        return guarded(*this, [&] {
            using Values = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
            nb::object found = instance.attr("read")();
            Values values;
            if (!nb::try_cast(found, values, false) || values.shape(0) != outputs) {
                // Not as it should be: converted, or refused in the same words as by the plain interpreter.
                found = nb::module_::import_("cosimo.core.arrays").attr("output_values")(found, outputs);
                values = nb::cast<Values>(found);
            }
            for (std::size_t i = 0; i < outputs; ++i) y[i] = values(i);
        });
    }
    int save() override {
        return guarded(*this, [&] {
            saved = instance.attr("save")();
        });
    }
    int restore() override {
        return guarded(*this, [&] {
            instance.attr("restore")(saved);
        });
    }
};

inline int add_python_object(Builder &builder, nb::object instance, nb::object object, const std::vector<std::string> &in,
                             const std::vector<std::string> &out) {
    auto unit = std::make_unique<PythonObject>();
    unit->step_method = object.attr("step");
    unit->instance = std::move(instance);
    unit->object = std::move(object);
    unit->inputs = in.size();
    unit->outputs = out.size();
    for (const auto &name : in) unit->input_names.push_back(checked(PyUnicode_InternFromString(name.c_str())));
    for (const auto &name : out) unit->output_names.push_back(checked(PyUnicode_InternFromString(name.c_str())));
    return builder.add(std::move(unit));
}

inline int add_python_instance(Builder &builder, nb::object instance, std::size_t inputs, std::size_t outputs, std::size_t powers) {
    auto unit = std::make_unique<PythonInstance>();
    if (nb::hasattr(instance, "post")) unit->post_method = instance.attr("post");
    unit->instance = std::move(instance);
    unit->inputs = inputs;
    unit->outputs = outputs;
    unit->powers = powers;
    unit->h = builder.program.machine.h;
    return builder.add(std::move(unit));
}

}  // namespace cosimo
