// Measurements of a oneTBB program, which it gives as one line of JSON.

#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <oneapi/tbb/version.h>

using Samples = std::map<std::string, std::vector<double>>;

inline void print(const Samples& samples) {
    std::printf("{\"facts\": {\"version\": \"%s\"}, \"samples\": {", TBB_runtime_version());
    const char* comma = "";
    for (auto& [name, values] : samples) {
        std::printf("%s\"%s\": [", comma, name.c_str());
        for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.9g", i ? ", " : "", values[i]);
        std::printf("]");
        comma = ", ";
    }
    std::printf("}}\n");
}
