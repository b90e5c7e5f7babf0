#include "phalanx/kernels/cuda/gemm_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"

namespace phx::kernels::cuda {

namespace {

constexpr int kFormat = 1;
using Words = std::array<uint64_t, sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t)>;

// Layouts follow where a matrix is not compact.
nlohmann::json to_json(const LtProblem& p) {
  nlohmann::json values = {
      p.m,       p.n,       p.k,       p.batch,         p.transpose_a,       p.transpose_b,
      p.align_a, p.align_b, p.align_c, int(p.epilogue), int(p.operand_type), int(p.out_type)};
  const GemmLayout* layouts[] = {&p.layout_a, &p.layout_b, &p.layout_c};
  const bool compact =
      std::ranges::all_of(layouts, [](const GemmLayout* x) { return *x == GemmLayout{}; });
  for (const GemmLayout* layout : layouts) {
    if (compact) break;
    values.push_back(layout->row);
    values.push_back(layout->matrix);
  }
  return values;
}

LtProblem problem_from(const nlohmann::json& values) {
  const auto layout = [&](size_t at) {
    return values.size() > 12 ? GemmLayout{values.at(at), values.at(at + 1)} : GemmLayout{};
  };
  return {.operand_type = cudaDataType_t(values.at(10).get<int>()),
          .out_type = cudaDataType_t(values.at(11).get<int>()),
          .m = values.at(0),
          .n = values.at(1),
          .k = values.at(2),
          .batch = values.at(3),
          .transpose_a = values.at(4),
          .transpose_b = values.at(5),
          .epilogue = cublasLtEpilogue_t(values.at(9).get<int>()),
          .align_a = values.at(6),
          .align_b = values.at(7),
          .align_c = values.at(8),
          .layout_a = layout(12),
          .layout_b = layout(14),
          .layout_c = layout(16)};
}

const char* type_name(cudaDataType_t type) {
  return type == CUDA_R_32F ? "f32" : type == CUDA_R_16BF ? "bf16" : "f16";
}

}  // namespace

GemmTable GemmTable::read(const Path& path) { return parse(read_file(path), path.string()); }

GemmTable GemmTable::parse(std::string_view text, const std::string& name) {
  GemmTable table;
  try {
    const nlohmann::json file = parse_json(std::string(text));
    PHX_CHECK(file.at("format") == kFormat, name, " has format ", json_text(file.at("format")),
              "; this phalanx reads ", kFormat, ": run `phalanx tune` again");
    table.gpu = file.at("gpu");
    table.library = file.at("cublaslt");
    for (const nlohmann::json& entry : file.at("products")) {
      const auto words = entry.at("algorithm").get<Words>();
      TunedAlgorithm tuned;
      std::memcpy(&tuned.algorithm, words.data(), sizeof(tuned.algorithm));
      if (const auto ms = entry.find("ms"); ms != entry.end()) {  // older files have none
        tuned.first_ms = ms->at(0);
        tuned.best_ms = ms->at(1);
      }
      table.algorithms[problem_from(entry.at("product"))] = tuned;
    }
  } catch (const nlohmann::json::exception& error) {
    throw_error(str_cat(name, " is no table of `phalanx tune`: ", error.what()));
  }
  return table;
}

// A product a line: tables in the repository are compared line by line.
void GemmTable::write(const Path& path) const {
  std::string text =
      str_cat("{\"format\": ", kFormat, ", \"gpu\": ", json_text(nlohmann::json(gpu)),
              ", \"cublaslt\": ", library, ", \"products\": [");
  const auto thousandths = [](double ms) { return std::round(ms * 1e4) / 1e4; };
  const char* separator = "\n";
  for (const auto& [problem, tuned] : algorithms) {
    Words words;
    std::memcpy(words.data(), &tuned.algorithm, sizeof(tuned.algorithm));
    const nlohmann::json entry = {{"product", to_json(problem)},
                                  {"algorithm", words},
                                  {"ms", {thousandths(tuned.first_ms), thousandths(tuned.best_ms)}},
                                  {"means", describe(problem)}};
    text += separator + json_text(entry);
    separator = ",\n";
  }
  if (path.has_parent_path()) make_folder(path.parent_path());
  write_file(path, text + "\n]}\n");
}

// In our row-major terms: the library sees the product transposed.
std::string describe(const LtProblem& p) {
  return str_cat(
      p.batch > 1 ? str_cat(p.batch, " x ") : "", p.n, " x ", p.m, " x ", p.k, " ",
      p.transpose_b ? "T" : "N", p.transpose_a ? "T" : "N", " ", type_name(p.operand_type), " to ",
      type_name(p.out_type),
      p.layout_a == GemmLayout{} && p.layout_b == GemmLayout{} && p.layout_c == GemmLayout{}
          ? ""
          : " in strides");
}

std::string gemm_table_name(const std::string& gpu, size_t library) {
  std::string name = gpu;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return str_cat(name, "_", library);
}

Path default_gemm_table(const std::string& gpu, size_t library) {
  Path folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0)
    folder = cache;
  else if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
    folder = Path(home) / ".cache";
  else
    return {};
  return folder / "phalanx" / str_cat("gemm_", gemm_table_name(gpu, library), ".json");
}

}  // namespace phx::kernels::cuda
