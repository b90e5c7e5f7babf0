# Libraries of the data and checkpoint rooms, by Debian package. Those without a CMake file of their
# own become targets here.
function(phx_library target header library)
  find_path(PHX_${library}_INCLUDE ${header} REQUIRED)
  find_library(PHX_${library}_LIBRARY ${library} REQUIRED)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${PHX_${library}_INCLUDE})
  target_link_libraries(${target} INTERFACE ${PHX_${library}_LIBRARY})
endfunction()

phx_library(phx::pcre2 pcre2.h pcre2-8)
phx_library(phx::simdjson simdjson.h simdjson)
phx_library(phx::utf8proc utf8proc.h utf8proc)
phx_library(phx::sentencepiece sentencepiece_processor.h sentencepiece)
phx_library(phx::sentencepiece_train sentencepiece_trainer.h sentencepiece_train)
phx_library(phx::xxhash xxhash.h xxhash)
phx_library(phx::zstd zstd.h zstd)
phx_library(phx::zlib zlib.h z)
