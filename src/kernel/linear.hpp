// Linear units: one step is one product with precomputed matrices, summed in the order of the columns.
#pragma once
#include <cstring>
#include <vector>

#include "unit.hpp"

namespace cosimo {

// out = M [a; b], M (rows, na + nb) by rows. Starts from the first product, as the plain interpreter does.
inline void multiply(const double *M, std::size_t rows, const double *a, std::size_t na, const double *b, std::size_t nb,
                     double *out) {
    for (std::size_t i = 0; i < rows; ++i, M += na + nb) {
        double sum = 0.0;
        bool first = true;
        for (std::size_t j = 0; j < na; ++j) {
            sum = first ? M[j] * a[j] : sum + M[j] * a[j];
            first = false;
        }
        for (std::size_t j = 0; j < nb; ++j) {
            sum = first ? M[na + j] * b[j] : sum + M[na + j] * b[j];
            first = false;
        }
        out[i] = sum;
    }
}

struct Linear final : Unit {
    // The map of one duration: x' = [A | B_0 … B_q] [x; c], and c' = S c, the polynomial moved along.
    struct Map {
        std::vector<double> step, along;
    };
    std::size_t states, powers;  // powers: q + 1
    std::vector<double> x, next, c, moved, output, saved_x, saved_c;
    bool feedthrough;
    std::vector<Map> known;

    Linear(std::vector<double> initial, std::vector<double> polynomial, std::size_t m, std::vector<double> C,
           std::size_t p, bool through)
        : states(initial.size()),
          powers(m ? polynomial.size() / m : 1),
          x(std::move(initial)),
          next(x.size()),
          c(std::move(polynomial)),
          moved(c.size()),
          output(std::move(C)),
          feedthrough(through) {
        inputs = m;
        outputs = p;
    }
    std::size_t maps() const override { return known.size(); }
    void forget_maps() override { known.clear(); }
    void remember(StateBytes &bytes) override {
        bytes.array(x);
        bytes.array(c);
    }
    int set(const double *given) override {
        if (!c.empty()) std::memcpy(c.data(), given, c.size() * sizeof(double));
        return 0;
    }
    int step(double, double, int map) override {
        const Map &now = known[static_cast<std::size_t>(map)];
        multiply(now.step.data(), states, x.data(), states, c.data(), c.size(), next.data());
        x.swap(next);
        if (powers > 1) {
            for (std::size_t i = 0; i < powers; ++i)
                for (std::size_t input = 0; input < inputs; ++input) {
                    double sum = now.along[i * powers] * c[input];
                    for (std::size_t j = 1; j < powers; ++j) sum += now.along[i * powers + j] * c[j * inputs + input];
                    moved[i * inputs + input] = sum;
                }
            c.swap(moved);
        }
        return 0;
    }
    int get(double *y) override {
        multiply(output.data(), outputs, x.data(), states, c.data(), feedthrough ? inputs : 0, y);
        return 0;
    }
    int save() override {
        saved_x = x;
        saved_c = c;
        return 0;
    }
    int restore() override {
        x = saved_x;
        c = saved_c;
        return 0;
    }
};

// A unit given by C functions: step(time, duration, x, u, y) and, where outputs feed through, output(time, x, u, y).
struct Compiled final : Unit {
    using Step = int (*)(double, double, double *, const double *, double *);
    using Output = int (*)(double, const double *, const double *, double *);
    Step advance;
    Output evaluate;
    double now;
    std::vector<double> x, u, y, saved;

    Compiled(Step s, Output o, std::vector<double> initial, std::vector<double> given, std::vector<double> first, double start)
        : advance(s), evaluate(o), now(start), x(std::move(initial)), u(std::move(given)), y(std::move(first)) {
        inputs = u.size();
        outputs = y.size();
    }
    void remember(StateBytes &bytes) override {
        bytes.array(x);
        bytes.array(u);
        bytes.array(y);
        bytes.value(now);
    }
    int set(const double *given) override {
        for (std::size_t i = 0; i < inputs; ++i) u[i] = given[i];
        return 0;
    }
    int step(double time, double duration, int) override {
        now = time + duration;
        return advance(time, duration, x.data(), u.data(), y.data());
    }
    int get(double *out) override {
        int status = evaluate ? evaluate(now, x.data(), u.data(), y.data()) : 0;
        for (std::size_t i = 0; i < outputs; ++i) out[i] = y[i];
        return status;
    }
    int save() override {
        saved = x;
        saved.insert(saved.end(), u.begin(), u.end());
        saved.insert(saved.end(), y.begin(), y.end());
        saved.push_back(now);
        return 0;
    }
    int restore() override {
        const double *from = saved.data();
        for (auto *part : {&x, &u, &y})
            for (double &value : *part) value = *from++;
        now = *from;
        return 0;
    }
};

}  // namespace cosimo
