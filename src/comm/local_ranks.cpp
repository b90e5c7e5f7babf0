#include "phalanx/comm/local_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/comm/job_key.h"
#include "phalanx/comm/process_ledgers.h"
#include "phalanx/comm/socket.h"

extern char** environ;

namespace phx {

namespace {

// One end of a rank's output.
struct Pipe {
  FileHandle end;
  OutputKind kind = OutputKind::out;
  std::string begun;  // a line without its end
};

struct Process {
  int rank = 0;
  pid_t id = 0;
  bool running = false;
  Pipe pipes[2];
};

// The signals that are passed on, and SIGCHLD, come out of a file descriptor while this lives.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (int signal : {SIGTERM, SIGINT, SIGUSR1, SIGCHLD}) sigaddset(&wanted, signal);
    struct sigaction hang_up = {};
    ::sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);  // not under nohup
    ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    queue_ = FileHandle(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    PHX_CHECK(queue_.is_open(), "signalfd failed: ", system_text(errno));
  }
  ~SignalQueue() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return queue_.get(); }
  const sigset_t& before() const { return before_; }
  std::vector<int> take() {
    std::vector<int> signals;
    signalfd_siginfo info;
    while (::read(queue_.get(), &info, sizeof info) == ssize_t(sizeof info))
      signals.push_back(int(info.ssi_signo));
    return signals;
  }

 private:
  sigset_t before_;
  FileHandle queue_;
};

// A folder for the ledgers, gone at the end.
class LedgerFolder {
 public:
  LedgerFolder() {
    std::string name;
    for (const Path& where : {Path("/dev/shm"), std::filesystem::temp_directory_path()}) {
      name = (where / "phalanx-ledgers-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) continue;
      path_ = name;
      return;
    }
    throw_file_error("make", name, errno);
  }
  ~LedgerFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  LedgerFolder(const LedgerFolder&) = delete;
  LedgerFolder& operator=(const LedgerFolder&) = delete;
  const Path& path() const { return path_; }

 private:
  Path path_;
};

int free_port() { return listen_on(0).port; }

std::vector<std::string> environment_of(const LocalRanks& ranks, int port, int local_rank,
                                        const Path& ledgers, const std::string& made_key) {
  std::vector<std::string> variables;
  std::vector<std::string> ours = {str_cat("RANK=", ranks.first_rank + local_rank),
                                   str_cat("WORLD_SIZE=", ranks.world_size),
                                   str_cat("LOCAL_RANK=", local_rank),
                                   str_cat("LOCAL_WORLD_SIZE=", ranks.count),
                                   str_cat("MASTER_ADDR=", ranks.master_host),
                                   str_cat("MASTER_PORT=", port),
                                   str_cat("PHX_STORE_PORT=", port),  // nobody else sits on it
                                   "PHX_LAUNCHER=phalanx launch"};
  ours.insert(ours.end(), ranks.variables.begin(), ranks.variables.end());
  if (!made_key.empty()) ours.push_back(str_cat("PHX_JOB_KEY=", made_key));
  const auto name_of = [](std::string_view v) { return v.substr(0, v.find('=') + 1); };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    bool replaced = false;
    for (const std::string& own : ours) replaced |= name_of(own) == name_of(*variable);
    if (!replaced) variables.emplace_back(*variable);
  }
  variables.insert(variables.end(), ours.begin(), ours.end());
  if (::getenv("PHX_LEDGER_DIR") == nullptr)
    variables.push_back(str_cat("PHX_LEDGER_DIR=", ledgers.string()));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

void make_pipe(FileHandle& read_end, FileHandle& write_end) {
  int ends[2];
  PHX_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe failed: ", system_text(errno));
  read_end = FileHandle(ends[0]);
  write_end = FileHandle(ends[1]);
  set_nonblocking(read_end);
}

// Own process groups: a Ctrl-C reaches this process alone, which passes it on once.
Process start(std::vector<std::string> command, std::vector<std::string> variables, int rank,
              const sigset_t& signals) {
  Process process{.rank = rank, .running = true};
  process.pipes[1].kind = OutputKind::error;
  FileHandle out, error;
  make_pipe(process.pipes[0].end, out);
  make_pipe(process.pipes[1].end, error);
  FileHandle nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<char*> arguments = pointers(command), environment = pointers(variables);
  const pid_t parent = ::getpid();
  process.id = ::fork();
  PHX_CHECK(process.id >= 0, "cannot start rank ", rank, ": ", system_text(errno));
  if (process.id == 0) {  // only calls that are safe after fork, up to exec
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody stays behind if the launcher is killed
    if (::getppid() != parent) ::_exit(1);
    ::pthread_sigmask(SIG_SETMASK, &signals, nullptr);
    ::dup2(nothing.get(), 0);
    ::dup2(out.get(), 1);
    ::dup2(error.get(), 2);
    ::execvpe(arguments[0], arguments.data(), environment.data());
    constexpr char kText[] = "the program of this rank cannot be started\n";
    (void)!::write(2, kText, sizeof kText - 1);
    ::_exit(127);
  }
  ::setpgid(process.id, process.id);  // whoever of the two comes first: a signal finds the group
  return process;
}

// Passes whole lines on; at the end also what has no end of line.
void read_lines(Process& process, Pipe& pipe, const OnLine& on_line) {
  char buffer[1 << 16];
  while (pipe.end.is_open()) {
    const ssize_t got = ::read(pipe.end.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      if (!pipe.begun.empty()) on_line(process.rank, pipe.kind, pipe.begun);
      pipe = {.end = {}, .kind = pipe.kind, .begun = {}};
      return;
    }
    std::string_view text(buffer, size_t(got));
    for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
      if (pipe.begun.empty()) {
        on_line(process.rank, pipe.kind, text.substr(0, end));
      } else {
        pipe.begun += text.substr(0, end);
        on_line(process.rank, pipe.kind, pipe.begun);
        pipe.begun.clear();
      }
    }
    pipe.begun += text;
  }
}

class Supervisor {
 public:
  Supervisor(const LocalRanks& ranks, int stopped_code, const OnLine& on_line)
      : ranks_(ranks), stopped_code_(stopped_code), on_line_(on_line) {}
  ~Supervisor() {  // only after an exception of our own
    for (Process& process : processes_) {
      if (!process.running) continue;
      ::kill(-process.id, SIGKILL);
      ::waitpid(process.id, nullptr, 0);
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  LocalRanksResult run() {
    const int port = ranks_.port != 0 ? ranks_.port : free_port();
    const char* given = ::getenv("PHX_JOB_KEY");
    const bool has_key = given != nullptr && *given != '\0';
    const bool all_here = ranks_.count == ranks_.world_size;
    const std::string key = all_here && !has_key ? make_job_key() : "";
    for (int r = 0; r < ranks_.count; ++r)
      processes_.push_back(start(ranks_.command,
                                 environment_of(ranks_, port, r, ledgers_.path(), key),
                                 ranks_.first_rank + r, signals_.before()));
    while (any_running()) {
      step();
      end_stragglers();
    }
    for (Process& process : processes_)  // what was written last
      for (Pipe& pipe : process.pipes) {
        read_lines(process, pipe, on_line_);
        if (!pipe.begun.empty()) on_line_(process.rank, pipe.kind, pipe.begun);
      }
    blame_the_first();
    return result_;
  }

 private:
  // Ranks that hear of a failure may end before the one that had it: that one left a note.
  void blame_the_first() {
    const char* given = ::getenv("PHX_LEDGER_DIR");
    const auto first =
        ProcessLedgers::first_failure(given != nullptr ? Path(given) : ledgers_.path());
    for (const RankEnd& end : failures_)
      if (first == end.rank) result_.first_failure = end;
  }

  bool any_running() const {
    for (const Process& process : processes_)
      if (process.running) return true;
    return false;
  }

  void step() {
    std::vector<pollfd> entries = {{signals_.descriptor(), POLLIN, 0}};
    for (const Process& process : processes_)
      for (const Pipe& pipe : process.pipes)
        if (pipe.end.is_open()) entries.push_back({pipe.end.get(), POLLIN, 0});
    const int wait = result_.first_failure ? milliseconds_until(next_step_) : -1;
    if (::poll(entries.data(), entries.size(), wait) < 0 && errno != EINTR)
      throw_error(str_cat("poll failed: ", system_text(errno)));
    for (Process& process : processes_)
      for (Pipe& pipe : process.pipes) read_lines(process, pipe, on_line_);
    for (int signal : signals_.take())
      if (signal != SIGCHLD) {
        result_.told_to_stop = true;
        kill_all(signal);
      }
    collect();
  }

  // Those that ended since the last look. A rank that was killed comes before those that only
  // noticed, even if they are found first: its connections close before it has quite ended.
  void collect() {
    std::optional<RankEnd> failed;
    for (Process& process : processes_) {
      int status = 0;
      if (!process.running || ::waitpid(process.id, &status, WNOHANG) != process.id) continue;
      process.running = false;
      for (Pipe& pipe : process.pipes) read_lines(process, pipe, on_line_);
      const RankEnd end{.rank = process.rank,
                        .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
      if (end.signal == 0 && end.exit_code == 0) continue;
      if (end.signal == 0 && end.exit_code == stopped_code_) {
        result_.stopped = true;
        continue;
      }
      failures_.push_back(end);
      if (!failed || (end.signal != 0 && failed->signal == 0)) failed = end;
    }
    if (!failed) return;
    if (result_.first_failure) {
      const bool noticed = result_.first_failure->signal == 0 && next_signal_ == SIGTERM;
      if (noticed && failed->signal != 0) result_.first_failure = failed;
      return;
    }
    result_.first_failure = failed;
    next_step_ = deadline_in(ranks_.patience);
    next_signal_ = SIGTERM;
  }

  void end_stragglers() {
    if (!result_.first_failure || milliseconds_until(next_step_) > 0) return;
    kill_all(next_signal_);
    next_step_ = deadline_in(ranks_.grace);
    next_signal_ = SIGKILL;
  }

  void kill_all(int signal) {
    for (const Process& process : processes_)
      if (process.running) ::kill(-process.id, signal);
  }

  const LocalRanks& ranks_;
  const int stopped_code_;
  const OnLine& on_line_;
  SignalQueue signals_;
  LedgerFolder ledgers_;
  std::vector<Process> processes_;
  LocalRanksResult result_;
  std::vector<RankEnd> failures_;  // in the order in which they were seen
  Deadline next_step_;
  int next_signal_ = SIGTERM;
};

}  // namespace

std::string describe(const RankEnd& end) {
  if (end.signal == 0) return str_cat("rank ", end.rank, " ended with exit code ", end.exit_code);
  return str_cat("rank ", end.rank, " was killed by signal ", end.signal, " (",
                 ::strsignal(end.signal), ")");
}

bool wait_without_ranks(std::chrono::milliseconds time) {
  SignalQueue signals;
  const Deadline end = deadline_in(time);
  for (int left; (left = milliseconds_until(end)) > 0;) {
    pollfd entry{signals.descriptor(), POLLIN, 0};
    PHX_CHECK(::poll(&entry, 1, left) >= 0 || errno == EINTR, "poll failed: ", system_text(errno));
    for (int signal : signals.take())
      if (signal != SIGCHLD) return false;
  }
  return true;
}

LocalRanksResult run_local_ranks(const LocalRanks& ranks, int stopped_code, const OnLine& on_line) {
  PHX_CHECK(!ranks.command.empty() && ranks.count > 0, "there is nothing to start");
  PHX_CHECK(ranks.first_rank + ranks.count <= ranks.world_size, "ranks ", ranks.first_rank, " to ",
            ranks.first_rank + ranks.count - 1, " are not in a world of ", ranks.world_size);
  return Supervisor(ranks, stopped_code, on_line).run();
}

}  // namespace phx
