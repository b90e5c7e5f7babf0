#include <csignal>
#include <string>
#include <vector>

#include "base/mapped_faults.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  phx::handle_mapped_faults(phx::OnMappedFault::end_program);
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit becomes an error that names the file
  return phx::run_phalanx(std::vector<std::string>(argv + 1, argv + argc));
}
