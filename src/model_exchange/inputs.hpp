// Inputs within a step: u(t) = value + first (t − begun) + second (t − begun)² / 2.
#pragma once
#include <string>
#include <vector>

#include "model.hpp"

namespace cosimo::exchange {

struct InputPolynomial {
    std::vector<InputVariable> variables;
    std::vector<std::uint32_t> references;
    std::vector<double> value, first, second;
    double begun = 0.0;
    bool moves = false;

    explicit InputPolynomial(std::vector<InputVariable> given) : variables(std::move(given)) {
        std::size_t n = 0;
        for (const InputVariable &input : variables) {
            references.push_back(input.reference);
            n += input.size;
        }
        for (auto *values : {&value, &first, &second, &at_}) values->assign(n, 0.0);
    }
    void hold() {
        if (!moves) return;
        first.assign(first.size(), 0.0);
        second.assign(second.size(), 0.0);
        moves = false;
    }
    // An empty text, or what is wrong. Derivatives of an array come element by element.
    std::string set_derivatives(const std::uint32_t *given, std::size_t count, const int *orders, const double *values) {
        std::vector<std::uint8_t> used(2 * value.size(), 0);
        for (std::size_t i = 0; i < count; ++i) {
            if (orders[i] < 1 || orders[i] > 2) return "input derivatives of orders 1 and 2 are taken, not of order " + std::to_string(orders[i]);
            bool found = false;
            std::size_t place = 0;
            for (const InputVariable &input : variables) {
                for (std::size_t k = 0; k < input.size && !found && input.reference == given[i]; ++k) {
                    const std::size_t slot = place + k, mark = 2 * slot + static_cast<std::size_t>(orders[i]) - 1;
                    if (used[mark]) continue;
                    used[mark] = 1;
                    (orders[i] == 1 ? first : second)[slot] = values[i];
                    found = true;
                }
                place += input.size;
            }
            if (!found) return "a derivative was given of something that is no real input";
        }
        moves = false;
        for (std::size_t i = 0; i < value.size(); ++i) moves = moves || first[i] != 0.0 || second[i] != 0.0;
        return {};
    }
    const std::vector<double> &at(double t) {
        const double d = t - begun;
        for (std::size_t i = 0; i < value.size(); ++i) at_[i] = value[i] + d * (first[i] + 0.5 * d * second[i]);
        return at_;
    }

private:
    std::vector<double> at_;
};

}  // namespace cosimo::exchange
