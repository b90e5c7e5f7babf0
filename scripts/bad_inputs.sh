#!/usr/bin/env bash
# Gives the program some two hundred inputs that are wrong, and looks at how it ends: with which exit
# code, with which words, in time, and without a crash or a library's own error text. The cases are
# lines of scripts/bad_inputs.txt; those that begin with * are the short form, which runs with the tests.
#
#   scripts/bad_inputs.sh [--quick] [--only WORD] [PHALANX]
set -uo pipefail
cd "$(dirname "$0")/.."
quick=0 only=""
while [[ ${1:-} == --* ]]; do
  case $1 in
    --quick) quick=1 ;;
    --only) only=$2; shift ;;
    *) echo "usage: scripts/bad_inputs.sh [--quick] [--only WORD] [PHALANX]" >&2; exit 2 ;;
  esac
  shift
done
P=$(realpath "${1:-build/release/phalanx}")
[[ -x $P ]] || { echo "there is no program $P: scripts/build.sh builds it" >&2; exit 2; }
F=$(realpath tests/data)
T=$(mktemp -d "${TMPDIR:-/tmp}/phalanx-bad-XXXXXX")
trap 'rm -rf "$T"' EXIT

# A model that trains in milliseconds ($M), without its source of tokens ($N): commands add what is wrong.
N="--num-layers 2 --hidden-size 32 --num-attention-heads 4 --swiglu --normalization RMSNorm
 --disable-bias-linear --position-embedding-type rope --seq-length 16 --max-position-embeddings 16
 --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 1e-3 --lr-decay-style constant
 --device cpu --threads 1 --log-interval 100"
V="$N --vocab-size 512"
M="$V --mock-data"
PORT=$((20000 + RANDOM % 12000))  # where ranks of a case meet
export P F T N V M PORT

good() { "$@" >"$T/setup.log" 2>&1 || { echo "the setup failed: $*"; cat "$T/setup.log"; exit 1; }; }
copy() { cp -r "$T/$1" "$T/$2"; }                       # a good thing, to be damaged
cut_to() { truncate -s "$2" "$1"; }
flip() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }  # bytes at a place

make_files() {
  : >"$T/empty"; printf x >"$T/one_byte"; head -c 5000 /dev/urandom >"$T/noise"; mkdir "$T/folder"
  for suffix in json jsonl model txt yaml u16 i32 pt safetensors svg jinja tiktoken idx bin; do
    : >"$T/empty.$suffix"; cp "$T/noise" "$T/noise.$suffix"; mkdir "$T/folder.$suffix"
  done
  printf abc >"$T/odd.u16"
  good "$P" corpus --output "$T/stories.jsonl" --megabytes 0.02
  good "$P" corpus --output "$T/stories.u16" --megabytes 0.02
}

make_data() {
  good "$P" preprocess --input "$T/stories.jsonl" --output-prefix "$T/pair" --tokenizer-type ByteTokenizer
  mv "$T/pair_text_document.bin" "$T/pair.bin"; mv "$T/pair_text_document.idx" "$T/pair.idx"
  for bad in magic version code cut no_bin no_idx short_bin long_bin lengths; do
    copy pair.bin "$bad.bin"; copy pair.idx "$bad.idx"
  done
  flip "$T/magic.idx" 0 XXXXXX
  flip "$T/version.idx" 9 '\x07'
  flip "$T/code.idx" 17 '\x63'
  cut_to "$T/cut.idx" 50
  rm "$T/no_bin.bin" "$T/no_idx.idx"
  cut_to "$T/short_bin.bin" 100
  printf more >>"$T/long_bin.bin"
  flip "$T/lengths.idx" 34 '\xff\xff\xff\xff'
  printf '{"text": "fine"}\n{"text": \n' >"$T/broken_line.jsonl"
  printf '{"other": "fine"}\n' >"$T/no_text.jsonl"
  printf '{"text": 7}\n' >"$T/number.jsonl"
  printf '{"text": "\\ud800"}\n' >"$T/surrogate.jsonl"
  printf '{"text": "\xff\xfe"}\n' >"$T/not_utf8.jsonl"
}

make_checkpoints() {
  good "$P" pretrain $M --save "$T/ck" --save-interval 1
  for bad in manifest_cut manifest_noise manifest_empty shard_cut shard_bit shard_gone tracker_words \
    tracker_empty tracker_ahead tracker_gone no_manifest; do copy ck "ck_$bad"; done
  local last=iter_0000002
  cut_to "$T/ck_manifest_cut/$last/manifest.json" 300
  cp "$T/noise" "$T/ck_manifest_noise/$last/manifest.json"
  : >"$T/ck_manifest_empty/$last/manifest.json"
  cut_to "$T/ck_shard_cut/$last/shard_00000.safetensors" 5000
  flip "$T/ck_shard_bit/$last/shard_00000.safetensors" 9000 '\x55\x55\x55\x55'
  rm "$T/ck_shard_gone/$last/shard_00000.safetensors"
  printf soon >"$T/ck_tracker_words/latest_checkpointed_iteration.txt"
  : >"$T/ck_tracker_empty/latest_checkpointed_iteration.txt"
  printf 99 >"$T/ck_tracker_ahead/latest_checkpointed_iteration.txt"
  rm "$T/ck_tracker_gone/latest_checkpointed_iteration.txt"
  rm "$T/ck_no_manifest/$last/manifest.json"
}

make_hf() {
  cp -r "$F/hf/llama3" "$T/hf"
  for bad in no_config config_noise config_words unknown no_index shard_gone shard_cut shard_noise index_noise \
    header_size; do copy hf "hf_$bad"; done
  rm "$T/hf_no_config/config.json"
  cp "$T/noise" "$T/hf_config_noise/config.json"
  sed -i 's/"hidden_size": [0-9]*/"hidden_size": "many"/' "$T/hf_config_words/config.json"
  sed -i 's/LlamaForCausalLM/MambaForCausalLM/; s/"model_type": "llama"/"model_type": "mamba"/' "$T/hf_unknown/config.json"
  rm "$T/hf_no_index/model.safetensors.index.json"
  rm "$T/hf_shard_gone/model-00002-of-00004.safetensors"
  cut_to "$T/hf_shard_cut/model-00002-of-00004.safetensors" 400
  cp "$T/noise" "$T/hf_shard_noise/model-00002-of-00004.safetensors"
  cp "$T/noise" "$T/hf_index_noise/model.safetensors.index.json"
  flip "$T/hf_header_size/model-00002-of-00004.safetensors" 0 '\xff\xff\xff\xff\xff\xff\xff\x7f'
}

make_megatron() {
  cp -r "$F/torch/torch_dist" "$T/dist"; cp -r "$F/torch/torch" "$T/torch"
  for bad in no_metadata metadata_cut metadata_noise metadata_empty file_gone file_cut file_noise; do copy dist "dist_$bad"; done
  rm "$T/dist_no_metadata/.metadata"
  cut_to "$T/dist_metadata_cut/.metadata" 100
  cp "$T/noise" "$T/dist_metadata_noise/.metadata"
  : >"$T/dist_metadata_empty/.metadata"
  rm "$T/dist_file_gone/__0_0.distcp"
  cut_to "$T/dist_file_cut/__0_0.distcp" 1000
  cp "$T/noise" "$T/dist_file_noise/__0_0.distcp"
  copy torch torch_gone; copy torch torch_cut; copy torch torch_tracker; copy torch torch_noise
  find "$T/torch_gone" -name '*.pt' -delete
  find "$T/torch_cut" -name '*.pt' -exec truncate -s 500 {} \;
  find "$T/torch_noise" -name '*.pt' -exec cp "$T/noise" {} \;
  printf 31 >"$T/torch_tracker/latest_checkpointed_iteration.txt"
}

make_tokenizers() {
  good "$P" tokenizer train --input "$T/stories.jsonl" --output "$T/tok" --vocab-size 400
  head -c 3000 "$T/tok/tokenizer.json" >"$T/tokenizer_cut.json"
  printf '{}' >"$T/tokenizer_nothing.json"
  printf '{"model": {"type": "Telepathy"}}' >"$T/tokenizer_kind.json"
  printf '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}' >"$T/tokenizer_merge.json"
  printf '{"model": {"type": "BPE", "vocab": 7, "merges": []}}' >"$T/tokenizer_vocab.json"
  printf 'not base64 !!! 0\n' >"$T/words.tiktoken"
  printf '{"a": 0}' >"$T/vocab.json"; printf '#version: 0.2\nx y\n' >"$T/merges.txt"
}

make_chats() {
  printf '{{%% for m in messages %%}}{{{{ m.content }}}}' >"$T/open_block.jinja"
  printf '{{{{ undefined_thing.x.y }}}}' >"$T/undefined.jinja"
  printf '{%% for m in messages %%}{{ m.role }}: {{ m.content }}{%% generation %%}x{%% endgeneration %%}\n{%% endfor %%}' >"$T/chat.jinja"
  printf '{%% for m in messages %%}' >"$T/open.jinja"
  printf '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}\n' >"$T/chat.jsonl"
  printf '{"messages": "hi"}\n' >"$T/chat_text.jsonl"
  printf '{"talk": []}\n' >"$T/chat_key.jsonl"
  printf '{"messages": []}\n' >"$T/chat_none.jsonl"
  printf '{"messages": [{"content": "hi"}]}\n' >"$T/chat_role.jsonl"
  printf '{"messages": [\n' >"$T/chat_cut.jsonl"
}

make_configs() {
  printf 'num-layers: 2\n  hidden: [\n' >"$T/broken.yaml"
  printf 'num_layers: 2\nhidden_sise: 32\n' >"$T/typo.yaml"
  printf 'num_layers: two\n' >"$T/words.yaml"
  printf -- '- a\n- b\n' >"$T/list.yaml"
  printf 'num_layers: 2\nnum_layers: 3\n' >"$T/twice.yaml"
  printf '{"iteration": 1, "lm loss": 2}\n' >"$T/metrics.jsonl"
  printf '{"iteration": 1}\n' >"$T/no_loss.jsonl"
}

make_files
make_data
make_checkpoints; make_hf; make_megatron; make_tokenizers; make_chats; make_configs

# Words that no user should see: a crash, a bug, or a library's own error.
raw='terminate called|Segmentation|core dumped|Bus error|Aborted|std::|basic_string|json\.exception|yaml-cpp: error|bad_alloc|what\(\):|Sanitizer|vector::|stoi|stol|out_of_range|filesystem error|This is a bug'

passed=0 failed=0 seen=0
while IFS='|' read -r code word command; do
  short=0
  [[ $code == \** ]] && short=1
  code=$(tr -d '* ' <<<"$code")
  word=$(sed 's/^ *//; s/ *$//' <<<"$word"); command=$(sed 's/^ *//' <<<"$command")
  [[ -z $code || $code == \#* ]] && continue
  ((quick && !short)) && continue
  [[ -n $only && "$command $word" != *"$only"* ]] && continue
  seen=$((seen + 1))
  rm -rf "$T/out"; mkdir "$T/out"
  (cd "$T/out" && timeout -k 5 60 bash -c "$command") >"$T/said" 2>&1 </dev/null
  status=$?
  why=""
  [[ $status == "$code" ]] || why="exit code $status instead of $code"
  ((status == 124)) && why="it hung"
  [[ -z $word ]] || grep -qaiF -- "$word" "$T/said" || why="$why; no word of '$word'"
  grep -qaE "$raw" "$T/said" && why="$why; a raw error: $(grep -aoE "$raw" "$T/said" | head -1)"
  if [[ -z $why ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n  %s\n%s\n' "$command" "${why#; }" "$(head -c 1500 "$T/said" | sed 's/^/    /')"
  fi
done <scripts/bad_inputs.txt
echo "$passed passed, $failed failed"
((failed == 0 && seen > 0))
