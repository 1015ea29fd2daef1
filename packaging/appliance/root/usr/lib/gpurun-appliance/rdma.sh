# rdma.sh: RDMA hardware, modules and the order of their start. Read by gpurun-appliance.
#
# "gpuctl health" checks ports, libraries and the modules of PVRDMA. The rest is about this image: the
# modules that its kernel has, and their order.
#
# The order stands in /etc/modprobe.d/gpurun-rdma.conf. /proc/modules lists the module that started
# last first, so the order in which modules started can be read there.
# shellcheck shell=bash

pci_devices() { # VENDOR [DEVICE]
  local device
  for device in "$ROOT"/sys/bus/pci/devices/*; do
    [ -e "$device/vendor" ] || continue
    [ "$(cat "$device/vendor")" = "$1" ] || continue
    [ $# -eq 1 ] || [ "$(cat "$device/device")" = "$2" ] || continue
    basename "$device"
  done
}

in_this_kernel() { # MODULE
  grep -qs "/$1\.ko" "$ROOT/lib/modules/$(running_kernel)/modules.dep"
}

# The place of a module in the order of starts. Empty if it is not loaded.
started_as() { # MODULE
  [ -e "$ROOT/proc/modules" ] || return 0
  tac "$ROOT/proc/modules" | awk -v name="$1" '$1 == name { print NR }'
}

kernel_log() {
  if [ -n "$ROOT" ]; then cat "$ROOT/dmesg" 2>/dev/null; else dmesg; fi
}

# The lines of health about RDMA, with the fixes. Fails when one is a warning or a failure. A small MTU
# makes RDMA slower only.
rdma_health() {
  # Its status is that of all checks.
  { gpuctl health --local 2>&1 || true; } | awk '
    /^(ok|warning|failed|n\/a) / {
      shown = $2 ~ /^(verbs-library|verbs-port|mtu|pvrdma-module)$/ && $1 != "n/a"
      if (shown && $1 != "ok" && $2 != "mtu") wrong = 1
      lines++
    }
    shown
    END {
      if (lines == 0) print "gpuctl health printed no check"
      exit wrong || lines == 0
    }'
}

rdma_check() {
  local wrong=0 seen="" first second driver pair hardware
  complain() {
    wrong=1
    echo "wrong  $*"
  }
  for pair in "mlx5_ib 0x15b3" "vmw_pvrdma 0x15ad 0x0820"; do
    # shellcheck disable=SC2086 # the driver, and the numbers of its devices
    set -- $pair
    driver=$1
    hardware=$(pci_devices "${@:2}")
    [ -n "$hardware" ] || continue
    seen=yes
    if [ -n "$(started_as "$driver")" ]; then
      echo "ok     $driver drives ${hardware//$'\n'/, }"
    elif in_this_kernel "$driver"; then
      complain "$driver is not loaded, for the device at ${hardware//$'\n'/, }. Try: modprobe $driver"
    else
      complain "kernel $(running_kernel) has no $driver, for the device at ${hardware//$'\n'/, }. See docs/appliance.md"
    fi
  done
  for pair in "ib_uverbs mlx5_ib" "mlx5_core mlx5_ib" "ib_uverbs rdma_rxe"; do
    first=$(started_as "${pair% *}")
    second=$(started_as "${pair#* }")
    [ -n "$second" ] || continue
    if [ -z "$first" ]; then
      complain "${pair#* } is loaded, and ${pair% *}, which it needs, is not"
    elif [ "$first" -gt "$second" ]; then
      complain "${pair#* } started before ${pair% *}. Try: modprobe -r ${pair#* } && modprobe ${pair#* }"
    else
      echo "ok     ${pair% *} started before ${pair#* }"
    fi
  done
  # A kernel that enforces no signatures says so of each module that has none, and loads it.
  if kernel_log | grep -v 'module verification failed' | grep -E '(vmw_pvrdma|mlx5_core|mlx5_ib|rdma_rxe).*(fail|error)'; then
    complain "the kernel logged the lines above"
  fi
  rdma_health || wrong=1
  [ -z "$(ls "$ROOT/sys/class/infiniband" 2>/dev/null)" ] || seen=yes
  if [ -n "$seen" ] && [ -z "$(started_as rdma_ucm)" ]; then
    echo "note   rdma_ucm is not loaded. gpurun does not need it, but programs that use librdmacm do: modprobe rdma_ucm"
  fi
  [ -n "$seen" ] || echo "note   no RDMA hardware is visible. \"rdma rxe on DEVICE\" makes an RDMA device in software"
  return "$wrong"
}

rxe() { # on|off DEVICE
  [[ $2 =~ ^[a-zA-Z0-9_.]{1,15}$ ]] || wrong_usage "\"$2\" is no name of a network device"
  case $1 in
    on)
      [ -e "$ROOT/sys/class/net/$2" ] || wrong_usage "there is no network device \"$2\""
      systemctl enable --quiet --now "gpurun-rxe@$2" ||
        fail "no RDMA device was made on $2. \"journalctl -u gpurun-rxe@$2\" has the reason."
      ;;
    off) systemctl disable --quiet --now "gpurun-rxe@$2" ;;
    *) wrong_usage "rdma rxe needs \"on\" or \"off\"" ;;
  esac
}

command_rdma() {
  case ${1:-} in
    check)
      [ $# -eq 1 ] || wrong_usage "rdma check has no arguments"
      rdma_check
      ;;
    rxe)
      [ $# -eq 3 ] || wrong_usage "rdma rxe needs \"on\" or \"off\", and a network device"
      rxe "$2" "$3"
      ;;
    *) wrong_usage "rdma needs \"check\" or \"rxe\"" ;;
  esac
}
