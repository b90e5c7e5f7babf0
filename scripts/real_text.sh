#!/usr/bin/env bash
# Real text to train on, from the documentation packages of Debian 12 (nothing is installed): handbooks, manuals, dictionaries and
# an FAQ of political theory, mostly English prose with code in it. Writes train.jsonl.zst, valid.jsonl.zst (documents held out),
# a GPT-2 tokenizer of 50,257 tokens and sources.md, a table of what each package gave. Downloads stay in FOLDER.source.
#   scripts/real_text.sh FOLDER [MEGABYTES of text]     needs apt-get, dpkg-deb, zstd; about 1.3 GB of downloads
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/real_text.sh FOLDER [MEGABYTES]} megabytes=${2:-180}
program=${PHX_PROGRAM:-build/release/phalanx}
packages=(
  ada-reference-manual-2020 anarchism apache2-doc bash-doc bind9-doc binutils-doc cmake-doc coreutils
  cppreference-doc-en-html csound-doc debian-faq debian-handbook debian-history debian-kernel-handbook debian-policy
  debian-reference-en derby-doc developers-reference dict-devil dict-foldoc dict-gcide dict-jargon dpdk-doc
  emacs-common erlang-doc exim4-doc-html fp-docs-3.2.2 freebsd-manpages freedombox-doc-en gap-doc ghc-doc giac-doc
  gimp-help-en git-doc glibc-doc gnome-user-docs gnucash-docs gnuplot-doc grass-doc harden-doc imagemagick-6-doc
  installation-guide-amd64 kicad-doc-en libboost1.74-doc libeigen3-doc libgtk-3-doc libreoffice-help-en-us libssl-doc
  lilypond-doc-html linux-doc-6.1 llvm-15-doc maint-guide manpages manpages-dev maxima-doc mpich-doc octave-doc
  opencv-doc openmpi-doc perl-doc postfix-doc postgresql-doc-15 python-astropy-doc python-dask-doc python-django-doc
  python-pandas-doc python-scipy-doc python-skimage-doc python-sklearn-doc python-sqlalchemy-doc
  python-statsmodels-doc python-sympy-doc python3.11-doc qtbase5-doc-html qtdeclarative5-doc-html r-doc-html
  racket-doc sagemath-doc sbcl-doc singular-doc sqlite3-doc sumo-doc swi-prolog-doc tcl8.6-doc tk8.6-doc twisted-doc
  vim-doc vim-runtime
)
mkdir -p "$out" "$out.source"
out=$(realpath "$out")
source=$out.source
for package in "${packages[@]}"; do
  ls "$source/${package}"_*.deb >/dev/null 2>&1 ||
    (cd "$source" && apt-get download -qq "$package") || echo "real_text: $package is not there: left out"
done
python3 scripts/real_text.py "$source" "$megabytes" "$source"/*.deb
mv "$source/sources.md" "$out/"
"$program" tokenizer train --input "$source/train.jsonl" --output "$out/tokenizer_50257" --vocab-size 50257 --pattern gpt2
for split in train valid; do
  zstd -q -f -9 --long=27 "$source/$split.jsonl" -o "$out/$split.jsonl.zst"
done
ls -l "$out"
