# driver.sh: the slot for NVIDIA's driver. Read by gpurun-appliance.
#
# The appliance carries no driver: its licence and its version are the operator's choice. "check"
# names what a driver would lack here. "install" refuses what cannot work before it changes anything.
# shellcheck shell=bash

has_headers() {
  [ -e "$ROOT/lib/modules/$(running_kernel)/build/Makefile" ]
}

has_tools() {
  [ -x "$ROOT/usr/bin/gcc" ] && [ -x "$ROOT/usr/bin/make" ]
}

# The last byte of the variable is 1 when the firmware accepts signed modules only.
secure_boot() {
  local variable
  for variable in "$ROOT"/sys/firmware/efi/efivars/SecureBoot-*; do
    [ -e "$variable" ] || continue
    [ "$(tail -c 1 "$variable" | od -An -tu1 | tr -d ' ')" = 1 ] && return 0
  done
  return 1
}

module_version() {
  [ -e "$ROOT/proc/driver/nvidia/version" ] || return 0
  grep -o 'Kernel Module *[0-9.]*' "$ROOT/proc/driver/nvidia/version" | grep -o '[0-9][0-9.]*$' || true
}

library_version() {
  local file
  file=$(driver_library) || return 0
  readlink -f "$file" | sed -n 's/.*libcuda\.so\.\([0-9]\{2,\}[0-9.]*\)$/\1/p'
}

# One line for each fact. Returns 1 if something is missing.
driver_check() {
  local missing=0 devices kernel module library
  lacks() {
    missing=1
    echo "lacks  $*"
  }
  devices=$(nvidia_devices)
  kernel=$(running_kernel)
  if [ -n "$devices" ]; then
    echo "ok     NVIDIA GPU at ${devices//$'\n'/, }"
  else
    lacks "an NVIDIA GPU: no NVIDIA device is visible. Pass one through. gpurund uses the emulated device"
  fi
  if module_loaded nouveau; then
    lacks "a free GPU: nouveau holds it. \"driver install\" disables it from the next start on"
  else
    echo "ok     nouveau is not loaded"
  fi
  module=$(module_version)
  if [ -n "$module" ]; then
    echo "ok     NVIDIA's kernel module $module"
  else
    lacks "NVIDIA's kernel module: none is loaded"
    if has_headers; then
      echo "ok     headers of kernel $kernel"
    else
      lacks "linux-headers-$kernel, to build the module"
    fi
    if has_tools; then echo "ok     gcc and make"; else lacks "gcc and make, to build the module"; fi
    if secure_boot; then
      lacks "permission: Secure Boot is on, and refuses a module that is built here"
    else
      echo "ok     Secure Boot is off"
    fi
  fi
  if driver_library >/dev/null; then
    library=$(library_version)
    if [ -n "$module" ] && [ -n "$library" ] && [ "$module" != "$library" ]; then
      lacks "one version: the library is $library, the kernel module is $module. Restart this machine"
    else
      echo "ok     NVIDIA's library ${library:-(version unknown)}"
    fi
  else
    lacks "NVIDIA's library libcuda.so.1"
  fi
  if [ "$(setting driver)" = real ]; then
    echo "ok     gpurund uses NVIDIA's driver"
  else
    echo "note   gpurund uses driver \"$(setting driver)\". \"driver install\" changes that"
  fi
  return "$missing"
}

run_file() { # FILE
  has_headers || fail "$1 needs linux-headers-$(running_kernel). Run: apt-get install linux-headers-amd64"
  has_tools || fail "$1 needs gcc and make. Run: apt-get install gcc make"
  sh "$1" --silent --no-opengl-files --no-x-check
}

driver_install() {
  local source debs=() runs=()
  for source in "$@"; do
    if [ -d "$source" ]; then
      while IFS= read -r -d '' file; do debs+=("$file"); done < <(files_of "$source" "*.deb")
      while IFS= read -r -d '' file; do runs+=("$file"); done < <(files_of "$source" "*.run")
    elif [ ! -f "$source" ]; then
      wrong_usage "there is no file or folder $source"
    else
      case $source in
        *.deb) debs+=("$(readlink -f "$source")") ;;
        *.run) runs+=("$source") ;;
        *) wrong_usage "$source is neither a .run file nor a .deb file" ;;
      esac
    fi
  done
  [ ${#debs[@]} -gt 0 ] || [ ${#runs[@]} -gt 0 ] || wrong_usage "$1 has no .run file and no .deb file"
  [ ${#runs[@]} -le 1 ] || wrong_usage "there are ${#runs[@]} .run files: name one"

  [ -n "$(nvidia_devices)" ] ||
    fail "no NVIDIA device is visible, so no driver can be checked. Pass a GPU through to this machine first."
  ! secure_boot || fail "Secure Boot is on, and refuses a module that is built here. Turn it off in the firmware."
  if module_loaded nouveau; then
    printf 'blacklist nouveau\noptions nouveau modeset=0\n' >"$ROOT/etc/modprobe.d/gpurun-nouveau.conf"
    update-initramfs -u
    fail "nouveau holds the GPU, and is disabled now. Please restart this machine, and repeat this command."
  fi
  umask 022 # Files that packages make are for all users.
  [ ${#debs[@]} -eq 0 ] ||
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${debs[@]}"
  [ ${#runs[@]} -eq 0 ] || run_file "${runs[0]}"
  modprobe nvidia || fail "the module of the new driver does not load. \"dmesg\" has the reason."
  modprobe nvidia_uvm || fail "nvidia_uvm does not load. \"dmesg\" has the reason."
  driver_check || fail "the driver was installed, and something is still missing: see above."
  set_setting driver real
  systemctl restart gpurund ||
    fail "gpurund does not start with this driver. \"journalctl -u gpurund\" has the reason."
  echo "gpurund uses NVIDIA's driver $(module_version)."
}

command_driver() {
  case ${1:-} in
    check)
      [ $# -eq 1 ] || wrong_usage "driver check has no arguments"
      driver_check
      ;;
    install)
      [ $# -ge 2 ] || wrong_usage "driver install needs a .run file, .deb files, or a folder of these"
      shift
      driver_install "$@"
      ;;
    *) wrong_usage "driver needs \"check\" or \"install\"" ;;
  esac
}
