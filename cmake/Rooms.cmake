# base < core < {kernels, comm} < ops < nn < parallel < transformer < models
# beside them   text: base   data: text, core   report: core   optim: parallel   checkpoint: optim
#               convert: models, checkpoint
# on top        train: all of these   cli: everything
phx_room(base PLAIN LINK fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json yaml-cpp Threads::Threads)
phx_room(core DEPENDS base)
phx_room(kernels DEPENDS core LINK OpenBLAS::OpenBLAS)
phx_room(comm PLAIN FAST reduce_in_order DEPENDS core)
include(Comm)
phx_room(ops PLAIN DEPENDS kernels comm)
phx_room(nn PLAIN DEPENDS ops)
phx_room(parallel PLAIN DEPENDS nn)
phx_room(transformer PLAIN DEPENDS parallel)
phx_room(models PLAIN DEPENDS transformer)
phx_room(text PLAIN
         FAST tokenizer/added_tokens tokenizer/bpe_merging tokenizer/bpe_model tokenizer/bpe_trainer
              tokenizer/merge_table tokenizer/normal_form tokenizer/pre_tokenizer tokenizer/rank_tokenizer
              tokenizer/regex tokenizer/split tokenizer/unicode
              tokenizer/word_models tokenizer/word_splitter
         DEPENDS base LINK phx::pcre2 phx::simdjson phx::utf8proc phx::sentencepiece phx::sentencepiece_train)
phx_room(data PLAIN
         FAST batch_order mock_data numpy_random sample_order
              gpt/blend gpt/gpt_dataset gpt/gpt_index indexed/indexed_dataset indexed/indexed_writer
              preprocess/json_line preprocess/preprocess preprocess/text_input
         DEPENDS text core LINK phx::simdjson phx::zstd phx::zlib)
phx_room(report PLAIN DEPENDS core)
phx_room(optim PLAIN DEPENDS parallel)
phx_room(checkpoint PLAIN FAST copy_box manifest tensor_source torch/strided_copy torch/split_masters DEPENDS optim LINK phx::xxhash phx::zlib)
phx_room(convert PLAIN DEPENDS models checkpoint)
phx_room(train PLAIN DEPENDS models optim data checkpoint convert report)
phx_room(verify PLAIN DEPENDS train)
phx_room(plan PLAIN DEPENDS train)
phx_room(cli PLAIN DEPENDS verify plan)
target_compile_definitions(phx_cli PRIVATE PHX_VERSION="${PROJECT_VERSION}")

add_executable(phalanx src/cli/main.cpp)
target_link_libraries(phalanx PRIVATE phx_cli)
install(TARGETS phalanx RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)

if(PHX_TESTS)  # everything the demo does, a few iterations long; what it learns by then is not looked at
  add_test(NAME demo.GoesFromACorpusToTextAndACurve COMMAND "${PROJECT_SOURCE_DIR}/scripts/demo.sh")
  set_tests_properties(demo.GoesFromACorpusToTextAndACurve PROPERTIES LABELS demo ENVIRONMENT
    "PHX_PROGRAM=$<TARGET_FILE:phalanx>;PHX_DEMO_OUT=${PROJECT_BINARY_DIR}/demo;PHX_DEMO_ITERS=4")
  add_test(NAME demo.SixteenExpertsOnFourRanksAreDrawn COMMAND "${PROJECT_SOURCE_DIR}/scripts/demo_experts.sh")
  set_tests_properties(demo.SixteenExpertsOnFourRanksAreDrawn PROPERTIES LABELS demo ENVIRONMENT
    "PHX_PROGRAM=$<TARGET_FILE:phalanx>;PHX_DEMO_OUT=${PROJECT_BINARY_DIR}/demo_experts;PHX_DEMO_ITERS=4")
endif()
if(PHX_TESTS)  # wrong commands, files and environments, and what is said about them
  add_test(NAME bad_inputs.EndWithTheRightCodeAndWords
           COMMAND "${PROJECT_SOURCE_DIR}/scripts/bad_inputs.sh" --quick "$<TARGET_FILE:phalanx>")
  set_tests_properties(bad_inputs.EndWithTheRightCodeAndWords PROPERTIES LABELS bad_inputs TIMEOUT 300)
endif()
if(TARGET cli_test)  # runs the program as users do
  add_dependencies(cli_test phalanx)
  target_compile_definitions(cli_test PRIVATE PHX_BINARY="$<TARGET_FILE:phalanx>")
endif()
