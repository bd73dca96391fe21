// Runs the tests of every file it is linked with: `tests [part of a name]`.
#include "check.hpp"

int main(int argc, char** argv) { return check::run(argc > 1 ? argv[1] : nullptr); }
