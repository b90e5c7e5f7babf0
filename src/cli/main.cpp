#include "phalanx/cli/commands.h"

int main(int argc, char** argv) { return phx::main(argc, argv); }
