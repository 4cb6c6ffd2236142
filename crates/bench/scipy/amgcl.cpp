// AMGCL for multigrid.py: one whole solve, set-up and iterations timed apart.
//
//     g++ -O3 -march=native -fopenmp -shared -fPIC -I AMGCL crates/bench/scipy/amgcl.cpp -o libamgcl.so
//
// AMGCL is a folder that has amgcl/; Boost's headers are needed too.

#include <chrono>
#include <cstring>
#include <sstream>
#include <vector>

#include <boost/range.hpp>

#include <amgcl/adapter/crs_tuple.hpp>
#include <amgcl/backend/builtin.hpp>
#include <amgcl/make_solver.hpp>
#include <amgcl/runtime.hpp>
#include <boost/property_tree/json_parser.hpp>

typedef amgcl::backend::builtin<double> Backend;
typedef amgcl::make_solver<amgcl::runtime::amg<Backend>, amgcl::runtime::iterative_solver<Backend>> Multigrid;
typedef amgcl::make_solver<amgcl::runtime::relaxation::as_preconditioner<Backend>, amgcl::runtime::iterative_solver<Backend>>
    Single;

template <class Solver>
static void run(
    int n, const int *ptr, const int *col, const double *val, const double *b, double *x, const boost::property_tree::ptree &prm,
    double *ms, int *iterations
) {
    typedef std::chrono::steady_clock clock;
    typedef std::chrono::duration<double, std::milli> milli;
    auto a = boost::make_tuple(
        n, boost::make_iterator_range(ptr, ptr + n + 1), boost::make_iterator_range(col, col + ptr[n]),
        boost::make_iterator_range(val, val + ptr[n])
    );
    auto begun = clock::now();
    Solver solve(a, prm);
    auto made = clock::now();
    std::vector<double> rhs(b, b + n), out(n, 0.0);
    auto started = clock::now();
    size_t count;
    double residual;
    boost::tie(count, residual) = solve(rhs, out);
    ms[0] = milli(made - begun).count();
    ms[1] = milli(clock::now() - started).count();
    *iterations = int(count);
    std::memcpy(x, out.data(), n * sizeof(double));
}

// Parameters as JSON. Returns 0, or 1 with `why` filled (255 characters at most).
extern "C" int amgcl_run(
    int n, const int *ptr, const int *col, const double *val, const double *b, double *x, const char *json, int has_levels,
    double *ms, int *iterations, char *why
) {
    try {
        boost::property_tree::ptree prm;
        std::istringstream text(json);
        boost::property_tree::read_json(text, prm);
        if (has_levels) {
            run<Multigrid>(n, ptr, col, val, b, x, prm, ms, iterations);
        } else {
            run<Single>(n, ptr, col, val, b, x, prm, ms, iterations);
        }
        return 0;
    } catch (const std::exception &e) {
        std::strncpy(why, e.what(), 255);
        why[255] = 0;
        return 1;
    }
}
