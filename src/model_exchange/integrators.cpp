#include "integrators.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "../kernel/platform.hpp"

namespace cosimo::exchange {
namespace {

// ---- fixed steps ----------------------------------------------------------------------------------------------------

// x_{k+1} = x_k + h f(t_k, x_k), or the classical method of order 4 (Hairer, Nørsett, Wanner: Solving Ordinary Differential
// Equations I, Table II.1.2). An event within a step is located by bisection of the step's length: the integrator then
// makes a step that ends just after it.
class FixedStep final : public Integrator {
public:
    FixedStep(const Settings &settings, Equations &equations, std::size_t states, std::size_t indicators)
        : Integrator(equations, states, indicators), fourth_(settings.solver == "rk4"), count_(settings.micro_steps),
          length_(settings.micro_step), begin_(states), stage_(states), k_(4, std::vector<double>(states)), before_(indicators),
          after_(indicators) {}

    bool restart(double t, const double *x, bool) override { return nz == 0 || f.indicators(t, x, before_.data()) == 0; }

    double micro_step(double h) const override {
        // A micro step given in seconds divides the macro step evenly; it is shortened where it would not.
        const double count = length_ > 0.0 ? std::ceil(h / length_ * (1.0 - 1e-12)) : static_cast<double>(count_);
        return h / std::max(1.0, count);
    }

    Advance advance(double t, double stop, bool, double *x) override {
        begin_.assign(x, x + nx);
        if (!step(t, stop - t, x)) return {t, false, true};
        if (nz == 0) return {stop, false, false};
        if (f.indicators(stop, x, after_.data())) return {t, false, true};
        if (!crosses()) {
            before_.swap(after_);
            return {stop, false, false};
        }
        double low = 0.0, high = 1.0;
        const double near = 4.0 * std::numeric_limits<double>::epsilon() * std::max(std::abs(t), std::abs(stop)) / (stop - t);
        while (high - low > near) {
            const double middle = low + (high - low) / 2.0;
            if (middle <= low || middle >= high) break;
            const double length = middle * (stop - t);
            if (!step(t, length, x) || f.indicators(t + length, x, after_.data())) return {t, false, true};
            (crosses() ? high : low) = middle;
        }
        const double length = high * (stop - t);
        const double reached = high == 1.0 ? stop : t + length;
        if (!step(t, length, x)) return {t, false, true};
        return {reached, true, false};
    }

private:
    bool fourth_;
    long count_;
    double length_;
    std::vector<double> begin_, stage_;
    std::vector<std::vector<double>> k_;
    std::vector<double> before_, after_;

    bool crosses() const {
        for (std::size_t i = 0; i < nz; ++i)
            if ((before_[i] > 0.0) != (after_[i] > 0.0)) return true;
        return false;
    }
    bool step(double t, double h, double *x) {
        const double *y = begin_.data();
        if (f.derivatives(t, y, k_[0].data())) return false;
        if (!fourth_) {
            for (std::size_t i = 0; i < nx; ++i) x[i] = y[i] + h * k_[0][i];
            return true;
        }
        for (int s = 1; s < 4; ++s) {
            const double c = s < 3 ? 0.5 : 1.0;
            for (std::size_t i = 0; i < nx; ++i) stage_[i] = y[i] + c * h * k_[static_cast<std::size_t>(s) - 1][i];
            if (f.derivatives(t + c * h, stage_.data(), k_[static_cast<std::size_t>(s)].data())) return false;
        }
        for (std::size_t i = 0; i < nx; ++i) x[i] = y[i] + h / 6.0 * (k_[0][i] + 2.0 * k_[1][i] + 2.0 * k_[2][i] + k_[3][i]);
        return true;
    }
};

// ---- CVODE ----------------------------------------------------------------------------------------------------------

using Vector = void *;
using Rhs = int (*)(double, Vector, Vector, void *);
using Root = int (*)(double, Vector, double *, void *);

constexpr int cv_bdf = 2, cv_normal = 1, cv_one_step = 2, cv_root_return = 2;
constexpr int cv_too_much_work = -1, cv_err_failure = -3, cv_conv_failure = -4, cv_too_much_accuracy = -2;
// CVODE starts anew at every communication point, at order 1, where each step makes an error near its tolerance. With this
// part of the requested one, errors are those of a run that goes on with its orders (measured on van der Pol's oscillator).
constexpr double tighter = 0.01, tightest = 1e-13;

// The functions of SUNDIALS 7 that are used, with the types of its headers (sunrealtype double, sunindextype int64_t).
struct Sundials {
    int (*SUNContext_Create)(int, void **) = nullptr;
    int (*SUNContext_ClearErrHandlers)(void *) = nullptr;
    int (*SUNContext_Free)(void **) = nullptr;
    int (*SUNDIALSGetVersionNumber)(int *, int *, int *, char *, int) = nullptr;
    double *(*N_VGetArrayPointer)(Vector) = nullptr;
    void (*N_VDestroy)(Vector) = nullptr;
    void (*SUNMatDestroy)(void *) = nullptr;
    int (*SUNLinSolFree)(void *) = nullptr;
    Vector (*N_VNew_Serial)(std::int64_t, void *) = nullptr;
    void *(*SUNDenseMatrix)(std::int64_t, std::int64_t, void *) = nullptr;
    void *(*SUNLinSol_Dense)(Vector, void *, void *) = nullptr;
    void *(*CVodeCreate)(int, void *) = nullptr;
    int (*CVodeInit)(void *, Rhs, double, Vector) = nullptr;
    int (*CVodeReInit)(void *, double, Vector) = nullptr;
    int (*CVodeSVtolerances)(void *, double, Vector) = nullptr;
    int (*CVodeRootInit)(void *, int, Root) = nullptr;
    int (*CVodeSetLinearSolver)(void *, void *, void *) = nullptr;
    int (*CVodeSetUserData)(void *, void *) = nullptr;
    int (*CVodeSetMaxNumSteps)(void *, long) = nullptr;
    int (*CVodeSetStopTime)(void *, double) = nullptr;
    int (*CVodeSetNoInactiveRootWarn)(void *) = nullptr;
    int (*CVode)(void *, double, Vector, double *, int) = nullptr;
    void (*CVodeFree)(void **) = nullptr;
    std::string problem;  // empty, or why it cannot be used

    Sundials(const std::string &core_path, const std::string &cvode_path) {
        void *core = open(core_path), *cvode = core ? open(cvode_path) : nullptr;
        if (!cvode) return;
#define FIND(library, name) find(library, name, #name)
        FIND(core, SUNContext_Create), FIND(core, SUNContext_ClearErrHandlers), FIND(core, SUNContext_Free);
        FIND(core, SUNDIALSGetVersionNumber), FIND(core, N_VGetArrayPointer), FIND(core, N_VDestroy), FIND(core, SUNMatDestroy);
        FIND(core, SUNLinSolFree);
        FIND(cvode, N_VNew_Serial), FIND(cvode, SUNDenseMatrix), FIND(cvode, SUNLinSol_Dense), FIND(cvode, CVodeCreate);
        FIND(cvode, CVodeInit), FIND(cvode, CVodeReInit), FIND(cvode, CVodeSVtolerances), FIND(cvode, CVodeRootInit);
        FIND(cvode, CVodeSetLinearSolver), FIND(cvode, CVodeSetUserData), FIND(cvode, CVodeSetMaxNumSteps);
        FIND(cvode, CVodeSetStopTime), FIND(cvode, CVodeSetNoInactiveRootWarn);
        FIND(cvode, CVode), FIND(cvode, CVodeFree);
#undef FIND
        int major = 0, minor = 0, patch = 0;
        char label[16] = {};
        if (problem.empty() && (SUNDIALSGetVersionNumber(&major, &minor, &patch, label, sizeof label) || major != 7))
            problem = "SUNDIALS has version " + std::to_string(major) + ", not 7";
    }

private:
    void *open(const std::string &path) { return open_library(path, problem); }
    template <class F>
    void find(void *library, F &place, const char *name) {
        place = reinterpret_cast<F>(find_function(library, name));
        if (!place && problem.empty()) problem = std::string("its library lacks ") + name;
    }
};

// Loaded once and kept.
const Sundials &sundials(const Settings &settings) {
    static std::mutex mutex;
    static std::map<std::string, Sundials> known;
    const std::lock_guard lock(mutex);
    auto found = known.find(settings.cvode);
    if (found == known.end()) found = known.emplace(settings.cvode, Sundials(settings.core, settings.cvode)).first;
    return found->second;
}

// Backward differentiation formulas of variable order and step with Newton's method and dense matrices (Hindmarsh et al.,
// SUNDIALS, ACM Transactions on Mathematical Software 31 (2005) 363). Absolute tolerances: the relative one times the
// nominal value of each state.
// What else CVode returns; where the model refused something, that is said instead.
std::string reason(int flag) {
    switch (flag) {
        case -5: case -6: case -7: return "its linear equations cannot be solved; the Jacobian of the model may be singular there";
        case -27: return "the time to go is too short for a step";
        default: return "code " + std::to_string(flag);
    }
}

class Cvode final : public Integrator {
public:
    Cvode(const Settings &settings, Equations &equations, std::size_t states, std::size_t indicators)
        : Integrator(equations, states, indicators), s_(sundials(settings)), tolerance_(std::max(tighter * settings.tolerance, tightest)), dummy_(states == 0) {
        const auto n = static_cast<std::int64_t>(dummy_ ? 1 : nx);
        if (!s_.problem.empty()) throw std::runtime_error(s_.problem);
        if (s_.SUNContext_Create(0, &context_)) throw std::runtime_error("SUNDIALS gives no context");
        s_.SUNContext_ClearErrHandlers(context_);  // it would print
        x_ = s_.N_VNew_Serial(n, context_);
        absolute_ = s_.N_VNew_Serial(n, context_);
        matrix_ = s_.SUNDenseMatrix(n, n, context_);
        if (!x_ || !absolute_ || !matrix_) throw std::runtime_error("there is not enough memory for CVODE");
        linear_ = s_.SUNLinSol_Dense(x_, matrix_, context_);
        data_ = s_.N_VGetArrayPointer(x_);
    }
    Cvode(const Cvode &) = delete;
    Cvode &operator=(const Cvode &) = delete;
    ~Cvode() override {
        if (memory_) s_.CVodeFree(&memory_);
        if (linear_) s_.SUNLinSolFree(linear_);
        if (matrix_) s_.SUNMatDestroy(matrix_);
        for (Vector vector : {x_, absolute_})
            if (vector) s_.N_VDestroy(vector);
        if (context_) s_.SUNContext_Free(&context_);
    }

    bool restart(double t, const double *x, bool nominals) override {
        if (dummy_)
            *data_ = 1.0;
        else
            std::copy(x, x + nx, data_);
        if (memory_) {
            if (nominals && !set_tolerances()) return false;
            return s_.CVodeReInit(memory_, t, x_) == 0;
        }
        memory_ = s_.CVodeCreate(cv_bdf, context_);
        return memory_ && s_.CVodeInit(memory_, rhs, t, x_) == 0 && set_tolerances() && s_.CVodeSetUserData(memory_, this) == 0 &&
               s_.CVodeSetLinearSolver(memory_, linear_, matrix_) == 0 && s_.CVodeSetMaxNumSteps(memory_, most_steps) == 0 &&
               s_.CVodeSetNoInactiveRootWarn(memory_) == 0 && (nz == 0 || s_.CVodeRootInit(memory_, static_cast<int>(nz), root) == 0);
    }
    double micro_step(double) const override { return std::numeric_limits<double>::infinity(); }

    Advance advance(double t, double stop, bool once, double *x) override {
        double reached = t;
        s_.CVodeSetStopTime(memory_, stop);
        const int flag = s_.CVode(memory_, stop, x_, &reached, once ? cv_one_step : cv_normal);
        if (flag < 0) {
            problem = flag == cv_err_failure || flag == cv_conv_failure
                          ? "CVODE finds no step that is short enough; the model may be singular there"
                      : flag == cv_too_much_work ? too_many_steps
                      : flag == cv_too_much_accuracy ? "the relative tolerance of CVODE is too small; choose a larger one"
                                                     : "CVODE gave up: " + reason(flag);
            return {t, false, true};
        }
        if (!dummy_) std::copy(data_, data_ + nx, x);
        return {reached, flag == cv_root_return, false};
    }

private:
    const Sundials &s_;
    double tolerance_;
    bool dummy_;  // one state that stays, so that there is something to integrate between events
    void *context_ = nullptr, *memory_ = nullptr, *matrix_ = nullptr, *linear_ = nullptr;
    Vector x_ = nullptr, absolute_ = nullptr;
    double *data_ = nullptr;

    bool set_tolerances() {
        double *absolute = s_.N_VGetArrayPointer(absolute_);
        if (dummy_)
            *absolute = 1.0;
        else if (f.nominals(absolute))
            return false;
        for (std::size_t i = 0; i < std::max<std::size_t>(nx, 1); ++i) {
            // Some units give 0, or nothing at all, as a nominal value.
            const double nominal = std::isfinite(absolute[i]) && absolute[i] != 0.0 ? std::abs(absolute[i]) : 1.0;
            absolute[i] = tolerance_ * nominal;
        }
        return s_.CVodeSVtolerances(memory_, tolerance_, absolute_) == 0;
    }
    static int rhs(double t, Vector y, Vector dy, void *self) {
        auto &me = *static_cast<Cvode *>(self);
        double *dx = me.s_.N_VGetArrayPointer(dy);
        if (me.dummy_) {
            *dx = 0.0;
            return 0;
        }
        return me.f.derivatives(t, me.s_.N_VGetArrayPointer(y), dx);
    }
    static int root(double t, Vector y, double *z, void *self) {
        auto &me = *static_cast<Cvode *>(self);
        return me.f.indicators(t, me.s_.N_VGetArrayPointer(y), z);
    }
};

}  // namespace

std::string missing_solver(const Settings &settings) {
    if (settings.solver != "cvode") return {};
    const std::string &problem = sundials(settings).problem;
    if (problem.empty()) return {};
    return "the solver CVODE is not to be had (" + problem + "); install FMPy again, or choose the solver euler or rk4";
}

std::unique_ptr<Integrator> make_integrator(const Settings &settings, Equations &equations, std::size_t states, std::size_t indicators) {
    if (settings.solver == "cvode" && states + indicators > 0) return std::make_unique<Cvode>(settings, equations, states, indicators);
    return std::make_unique<FixedStep>(settings, equations, states, indicators);
}

}  // namespace cosimo::exchange
