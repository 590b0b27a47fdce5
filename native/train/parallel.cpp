#include "train/parallel.h"

dbq::OpenMP dbq::openmp{};

extern "C" void dbq_use_openmp(decltype(dbq::OpenMP::parallel) parallel, decltype(dbq::OpenMP::thread) thread,
                               decltype(dbq::OpenMP::threads) threads) {
    dbq::openmp = {parallel, thread, threads};
}
