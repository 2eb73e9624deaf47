#!/bin/sh
# Builds the recorder's objects in a directory, by default that of this script. Needs clang,
# llvm-strip and libbpf-dev. The objects contain no paths of the build machine, so the same compiler
# produces the same bytes everywhere.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
cd "$here"
for arch in x86:x86_64 arm64:aarch64; do
    clang -O2 -g -target bpf -mcpu=v3 "-D__TARGET_ARCH_${arch%%:*}" -Wall -Werror -Wno-unused-function \
        -fdebug-compilation-dir=. "-ffile-prefix-map=$here=." \
        -c recorder.bpf.c -o "$out/recorder.${arch##*:}.o"
    # Removes DWARF, which nothing reads. Types stay in .BTF, source lines in .BTF and .BTF.ext.
    llvm-strip-14 -g "$out/recorder.${arch##*:}.o" 2>/dev/null || llvm-strip -g "$out/recorder.${arch##*:}.o"
done
