#!/bin/sh
# The first process in the host's root. It makes the guest's network, runs the script of lab.py, leaves its
# output and its exit status in /run/lab, and ends the guest.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
set -a
. /run/lab/environment
set +a
LAB_GUEST=$(sed 's/.*lab\.guest=//' /proc/cmdline)  # The last word.
export LAB_GUEST LAB_SHARED=/run/lab
end() {
  echo "$1" > "/run/lab/status.$LAB_GUEST.partial"
  mv "/run/lab/status.$LAB_GUEST.partial" "/run/lab/status.$LAB_GUEST"
  for guest in $LAB_GUESTS; do "$LAB_FOLDER/guest/meet" "status.$guest" 60; done
  echo b > /proc/sysrq-trigger  # QEMU ends in place of the reboot.
  sleep 60
}
ip link set lo up
if ! sh -e "$LAB_FOLDER/guest/network_$LAB_NETWORK.sh" > "/run/lab/output.$LAB_GUEST" 2>&1; then
  echo "lab: no network '$LAB_NETWORK'" >> "/run/lab/output.$LAB_GUEST"
  end 125
fi
cd "$LAB_DIRECTORY" || end 125
setsid sh "/run/lab/script.$LAB_GUEST" >> "/run/lab/output.$LAB_GUEST" 2>&1 < /dev/null
end $?
