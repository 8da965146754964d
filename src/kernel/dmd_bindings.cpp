// Predictors as Python sees them: see cosimo.couplings.
#include "bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "dmd.hpp"

namespace nb = nanobind;
using namespace cosimo::dmd;

namespace {

using Numbers = std::vector<double>;
using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Filled = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::unique_ptr<Predictor> make(std::size_t n, std::size_t p, const std::string &method, std::size_t window, bool centred,
                                std::size_t delays, const std::vector<std::pair<std::size_t, std::size_t>> &pairs,
                                double step, double tolerance, bool watched, bool lines) {
    Options options;
    options.watched = watched;
    options.lines = lines;
    options.n = n;
    options.p = p;
    if (method == "recursive")
        options.method = Options::Method::recursive;
    else if (method == "robust")
        options.method = Options::Method::robust;
    else if (method == "auto")
        options.method = Options::Method::automatic;
    else
        throw nb::value_error("the method is 'recursive', 'robust' or 'auto'");
    if (n == 0) throw nb::value_error("a predictor needs at least one sample");
    if (window == 0) throw nb::value_error("a window holds at least one pair");
    options.window = window;
    options.centred = centred;
    options.delays = delays;
    options.step = step;
    options.tolerance = tolerance;
    for (const auto &[position, velocity] : pairs) {
        if (position >= n || velocity >= n || position == velocity)
            throw nb::value_error("a pair is the index of a position and of another sample, its velocity");
        options.pairs.push_back({position, velocity});
    }
    return make_predictor(options);
}

Numbers advance(Predictor &predictor, const Numbers &x, const Numbers &u) {
    const Options &options = predictor.options();
    if (x.size() != options.n || u.size() != options.p) throw nb::value_error("the samples do not fit the predictor");
    Numbers next(options.n);
    predictor.advance(x.data(), u.data(), next.data());
    return next;
}

// The predictions along a whole record, row by row.
void follow(Predictor &predictor, Table x, Table u, Filled next) {
    const Options &options = predictor.options();
    if (x.shape(1) != options.n || next.shape(1) != options.n || u.shape(1) != options.p || u.shape(0) != x.shape(0) ||
        next.shape(0) != x.shape(0))
        throw nb::value_error("the samples do not fit the predictor");
    nb::gil_scoped_release release;
    for (std::size_t k = 0; k < x.shape(0); ++k)
        predictor.advance(x.data() + k * options.n, u.data() + k * options.p, next.data() + k * options.n);
}

}  // namespace

void cosimo::bind_predictors(nb::module_ &m) {
    nb::class_<Predictor>(m, "Predictor")
        .def(nb::new_(&make), nb::arg("n"), nb::arg("p"), nb::kw_only(), nb::arg("method"), nb::arg("window"),
             nb::arg("centred"), nb::arg("delays"), nb::arg("pairs"), nb::arg("step"), nb::arg("tolerance"),
             nb::arg("watched") = false, nb::arg("lines") = false)
        .def("advance", &advance, nb::arg("x"), nb::arg("u"))
        .def("follow", &follow, nb::arg("x"), nb::arg("u"), nb::arg("next").noconvert())
        .def("save",
             [](const Predictor &predictor) {
                 Numbers saved;
                 predictor.save(saved);
                 return saved;
             })
        .def("restore",
             [](Predictor &predictor, const Numbers &saved) {
                 if (!predictor.restore(saved)) throw nb::value_error("this was not saved by a predictor of this kind");
             })
        .def("freeze", &Predictor::freeze)
        .def_prop_ro("frozen", &Predictor::frozen)
        .def_prop_ro("expert", &Predictor::expert)
        .def_prop_ro("experts", &Predictor::experts)
        .def_prop_ro("error", &Predictor::error)
        // (whether the model is used, samples for which it was not, changes, the samples of the first changes)
        .def_prop_ro("watch",
                     [](const Predictor &predictor) {
                         Watch watch = predictor.watch();
                         return std::make_tuple(watch.used, watch.held, watch.changes, std::move(watch.changed));
                     })
        // (samples, S by rows, b)
        .def("model", [](const Predictor &predictor) {
            Model model = predictor.model();
            return std::make_tuple(model.samples, std::move(model.S), std::move(model.b));
        });
}
