# For the cycles of packages that need no root: a folder of work, an unprivileged user, and a gpurund
# of the server tree with the emulated device. Source it after common.sh.
# shellcheck shell=bash

# start_server TREE CLIENT: sets $address. The user's token is $work/home/token.
start_server() {
  mkfifo "$work/ready"
  "$1/bin/gpurund" --listen 127.0.0.1:0 --driver emulated --tokens "$work/tokens" --audit none --cache none \
    --ready-fd 3 3> "$work/ready" 2> "$work/gpurund.log" > /dev/null & daemon=$!
  # shellcheck disable=SC2034 # The script uses it.
  read -r -t 60 address < "$work/ready" || fail "gpurund did not start: $(cat "$work/gpurund.log")"
  "$2/bin/gpuctl" token create anna --tokens "$work/tokens" -o "$work/home/token" 2> /dev/null
  if [ ${#user[@]} != 0 ]; then chown 65534:65534 "$work/home/token"; fi
}

# as_user COMMAND...: as nobody, with a home of its own, where this is root. $path is its PATH.
as_user() {
  env -i "HOME=$work/home" "PATH=${path:-/usr/bin:/bin}" LC_ALL=C.UTF-8 "GPURUN_TOKEN_FILE=$work/home/token" \
    "${environment[@]}" "${user[@]}" "$@"
}

# shellcheck disable=SC2317 # Called by the trap.
end_work() {
  if [ -n "$daemon" ]; then { kill "$daemon" && wait "$daemon"; } 2> /dev/null || true; fi
  rm -rf "$work"
}

work=$(mktemp -d) daemon="" user=() environment=()
trap end_work EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 0755 "$work"
install -d -m 0755 "$work/home"
if [ "$(id -u)" = 0 ]; then
  user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  chown 65534:65534 "$work/home"
fi
