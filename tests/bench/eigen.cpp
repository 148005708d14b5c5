// eigen.cpp: Eigen's matrix product for compose.c. A plug-in, because Eigen consists of headers: built if they are
// installed.
#include <Eigen/Core>

#include "bench.h"

typedef Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> matrix;
typedef Eigen::OuterStride<> rows_apart;
typedef Eigen::Map<const matrix, 0, rows_apart> in;
typedef Eigen::Map<matrix, 0, rows_apart> out;
typedef Eigen::Map<const Eigen::VectorXf> in_row;
typedef Eigen::Map<Eigen::VectorXf> out_row;

static void nt(const bench_gemm *, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
               float beta, float *c, int ldc)
{
    const in B(b, n, k, rows_apart(ldb));
    if (m == 1) {
        out_row y(c, n);
        if (beta == 0.0f) y.setZero();
        y.noalias() += B * (alpha * in_row(a, k)).eval();
    } else if (beta == 0.0f) {
        out(c, m, n, rows_apart(ldc)).noalias() = alpha * in(a, m, k, rows_apart(lda)) * B.transpose();
    } else {
        out(c, m, n, rows_apart(ldc)).noalias() += alpha * in(a, m, k, rows_apart(lda)) * B.transpose();
    }
}

static void nn(const bench_gemm *, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
               float, float *c, int ldc)
{
    const in B(b, k, n, rows_apart(ldb));
    if (m == 1) out_row(c, n).noalias() = B.transpose() * (alpha * in_row(a, k)).eval();
    else out(c, m, n, rows_apart(ldc)).noalias() = alpha * in(a, m, k, rows_apart(lda)) * B;
}

#define TEXT(number) #number
#define WITH_DOTS(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
#if EIGEN_WORLD_VERSION == 3 && EIGEN_MAJOR_VERSION < 5
static char version[] = WITH_DOTS(EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
#else                                     // version 5 and later: WORLD remains 3, and PATCH is the third number
static char version[] = WITH_DOTS(EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION, EIGEN_PATCH_VERSION);
#endif

extern "C" const bench_gemm bench_eigen;
extern "C" const bench_gemm bench_eigen = { nt, nn, version };
