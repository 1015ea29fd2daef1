# Functions of the scripts below packaging/. A script has its usage in the comment above its first
# command.
# shellcheck shell=bash
me=$(basename "$0")

usage() { sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"; }
# fail MESSAGE: what failed, why, and what to do.
fail() { echo "$me: $1" >&2; exit 1; }
wrong_usage() { echo "$me: $1 (--help shows the usage)" >&2; exit 2; }
# need_value OPTION COUNT: an option with a value must not be the last word.
need_value() { [ "$2" -ge 2 ] || wrong_usage "$1 needs a value"; }
# need_commands PACKAGE=COMMAND...: names the package of Debian that has a missing command.
need_commands() {
  local pair
  for pair in "$@"; do
    command -v "${pair#*=}" > /dev/null ||
      fail "the command ${pair#*=} is missing: install it with 'apt-get install ${pair%%=*}'"
  done
}
# need_files WHAT FOLDER FILE...: a tree is whole.
need_files() {
  local what=$1 folder=$2 file
  shift 2
  [ -d "$folder" ] || fail "there is no $what $folder: build it first (packaging/$what/build), or name another"
  for file in "$@"; do
    [ -e "$folder/$file" ] || fail "the $what tree $folder lacks $file: build it again (packaging/$what/build)"
  done
}
# The time of every file in a package, so that equal trees make equal packages.
set_source_date() {
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2> /dev/null || echo 1767225600)}
  export SOURCE_DATE_EPOCH
}
# say_time WHAT: prints how long a step took, since the last call or begin_step.
begin_step() { step_began=${EPOCHREALTIME/[.,]/}; }
begin_step
say_time() {
  local now=${EPOCHREALTIME/[.,]/}
  printf '%6s s  %s\n' "$(((now - step_began) / 1000000)).$(printf %01d $(((now - step_began) / 100000 % 10)))" "$1"
  step_began=$now
}
