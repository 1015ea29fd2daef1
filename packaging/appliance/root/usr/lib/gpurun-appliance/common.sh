# common.sh: facts about this machine, and the file of settings. Read by gpurun-appliance.
# shellcheck shell=bash

# The GPUs that the PCI bus shows, one address a line.
nvidia_devices() {
  local device
  for device in "$ROOT"/sys/bus/pci/devices/*; do
    [ -e "$device/vendor" ] || continue
    [ "$(cat "$device/vendor")" = 0x10de ] || continue
    case $(cat "$device/class") in
      0x03*) basename "$device" ;;
    esac
  done
}

module_loaded() { # NAME
  grep -qs "^$1 " "$ROOT/proc/modules"
}

running_kernel() {
  if [ -n "$ROOT" ]; then cat "$ROOT/proc/sys/kernel/osrelease"; else uname -r; fi
}

driver_library() {
  local file
  for file in "$ROOT"/usr/lib/x86_64-linux-gnu/libcuda.so.1 "$ROOT"/usr/lib64/libcuda.so.1 \
    "$ROOT"/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1 "$ROOT"/usr/lib/libcuda.so.1; do
    if [ -e "$file" ]; then
      echo "$file"
      return 0
    fi
  done
  return 1
}

# "real" if NVIDIA's driver can work: a GPU, the kernel's part and the library. Else "emulated".
driver_that_fits() {
  if [ -n "$(nvidia_devices)" ] && module_loaded nvidia && driver_library >/dev/null; then
    echo real
  else
    echo emulated
  fi
}

# The value of a top-level key of gpurund.toml, without quotes.
setting() { # KEY
  sed -n "/^\[/q; s/^$1 *= *\"\{0,1\}\([^\"#]*\)\"\{0,1\}.*/\1/p" "$SETTINGS" | head -n 1 | sed 's/ *$//'
}

# Sets a top-level key to a text. The key must stand above the first table.
set_setting() { # KEY VALUE
  local draft="$SETTINGS.new"
  awk -v key="$1" -v line="$1 = \"$2\"" '
    /^\[/ && !done { print line; print ""; done = 1 }
    !done && $0 ~ "^" key " *=" { print line; done = 1; next }
    { print }
    END { if (!done) print line }' "$SETTINGS" >"$draft"
  chmod --reference="$SETTINGS" "$draft"
  mv "$draft" "$SETTINGS"
}

configured() {
  [ -e "$STATE/configured" ]
}

fingerprint() {
  gpurund --fingerprint --config "$SETTINGS" 2>/dev/null | grep -o 'sha256:[0-9a-f]*' | head -n 1
}

addresses() {
  ip -o addr show scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4 }'
}

package_version() { # PACKAGE
  # shellcheck disable=SC2016 # dpkg-query reads ${Version}
  dpkg-query -W -f '${Version}' "$1" 2>/dev/null || echo "not installed"
}

files_of() { # FOLDER PATTERN
  find "$(readlink -f "$1")" -maxdepth 1 -name "$2" -print0 | sort -z
}

# Polls a command until it succeeds, for some seconds.
wait_for() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.5
  done
}
