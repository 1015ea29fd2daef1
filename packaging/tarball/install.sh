#!/bin/sh
# Installs the client of gpurun from this folder, or removes it.
#
# usage: ./install.sh [--prefix DIR] [--uninstall]
#
# --prefix DIR   by default /usr/local for root, and ~/.local for others, which needs no root
# --uninstall    removes what an earlier run has installed there
#
# A newer version is installed over an older one. Programs that run meanwhile keep the old files.
set -eu
arch=@ARCH@ glibc=@GLIBC@ version=@VERSION@

fail() { echo "install.sh: $1" >&2; exit 1; }
wrong_usage() { echo "install.sh: $1 (--help shows the usage)" >&2; exit 2; }
usage() { sed -n '2,${/^#/!q;s/^# \{0,1\}//p;}' "$0"; }

prefix="" uninstall=no
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --prefix) [ $# -ge 2 ] || wrong_usage "--prefix needs a value"; prefix=$2; shift 2 ;;
    --uninstall) uninstall=yes; shift ;;
    *) wrong_usage "unknown word '$1'" ;;
  esac
done
if [ -z "$prefix" ]; then
  if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
fi
case "$prefix" in /*) ;; *) prefix=$PWD/$prefix ;; esac
list=$prefix/share/gpurun/installed-files

# remove LIST: the files of a list, and folders that are empty then. No file outside of the prefix.
remove() {
  while IFS= read -r file; do
    case "$file" in "" | /* | *..*) continue ;; esac
    rm -f "$prefix/$file"
  done < "$1"
  while IFS= read -r file; do
    case "$file" in "" | /* | *..*) continue ;; esac
    folder=$(dirname "$file")
    while [ "$folder" != . ] && rmdir "$prefix/$folder" 2> /dev/null; do folder=$(dirname "$folder"); done
  done < "$1"
}

if [ "$uninstall" = yes ]; then
  [ -e "$list" ] || fail "nothing is installed in $prefix: there is no $list; name another folder with --prefix"
  copy=$(mktemp)
  cp "$list" "$copy"
  remove "$copy"
  rm -f "$copy"
  rmdir "$prefix" 2> /dev/null || true
  echo "gpurun is removed from $prefix. Tokens and keys of users stay in ~/.config/gpurun."
  exit 0
fi

machine=$(uname -m)
[ "$machine" = "$arch" ] || fail "this package is for $arch, and this machine is $machine: get the package for $machine"
found=$(getconf GNU_LIBC_VERSION 2> /dev/null | sed 's/^glibc //') || found=""
[ -n "$found" ] || fail "this system has no glibc (musl?): gpurun needs glibc $glibc or newer, as in Debian, Ubuntu, Fedora"
oldest=$(printf '%s\n%s\n' "$glibc" "$found" | sort -t . -k 1,1n -k 2,2n | head -n 1)
[ "$oldest" = "$glibc" ] || fail "this system has glibc $found, and gpurun needs $glibc: install on a newer system, or in a container of one"

source=$(cd "$(dirname "$0")" && pwd)
[ -e "$source/files" ] || fail "$source/files is missing: unpack the archive again, whole"
mkdir -p "$prefix/share/gpurun" || fail "cannot write to $prefix: name a folder of yours with --prefix, or run as root"
[ -w "$prefix/share/gpurun" ] || fail "cannot write to $prefix: name a folder of yours with --prefix, or run as root"
if [ -e "$list" ]; then cp "$list" "$list.old"; fi
# The list comes first, so that --uninstall also removes an installation that was interrupted.
{ cat "$source/files"; if [ -e "$list.old" ]; then cat "$list.old"; fi; echo share/gpurun/installed-files; } |
  sort -u > "$list.new"
mv "$list.new" "$list"
while IFS= read -r file; do
  mkdir -p "$prefix/$(dirname "$file")"
  # A program that runs keeps the old file, because the new one takes its name in one step.
  cp -P "$source/$file" "$prefix/$file.new"
  mv -f "$prefix/$file.new" "$prefix/$file"
done < "$source/files"
# Files that only the older version had.
if [ -e "$list.old" ]; then
  { cat "$source/files"; echo share/gpurun/installed-files; } | sort -u > "$list.new"
  sort -u "$list.old" | comm -13 "$list.new" - > "$list.gone"
  mv "$list.new" "$list"
  remove "$list.gone"
  rm -f "$list.old" "$list.gone"
fi
printed=$("$prefix/bin/gpurun" --version) || fail "gpurun is installed in $prefix and does not start: see the line above"
echo "$printed (package $version) is installed in $prefix. Next:"
case ":$PATH:" in
  *":$prefix/bin:"*) ;;
  *) echo "  export PATH=$prefix/bin:\$PATH" ;;
esac
echo "  gpurun login HOST           # the server of your GPUs: asks for your token"
echo "  gpurun -- ./program"
