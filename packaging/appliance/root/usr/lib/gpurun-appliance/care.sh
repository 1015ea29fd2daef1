# care.sh: updates, ssh and the reset. Read by gpurun-appliance.
# shellcheck shell=bash

# Users with leases, or nothing.
leases() {
  gpuctl list --json 2>/dev/null | python3 -IS -c '
import json, sys
print(sum(json.loads(line).get("leases") or 0 for line in sys.stdin))'
}

command_update() {
  local now="" source file name debs=() before after running
  if [ "${1:-}" = --now ]; then
    now=yes
    shift
  fi
  [ $# -gt 0 ] || wrong_usage "update needs .deb files, or a folder of these"
  for source in "$@"; do
    if [ -d "$source" ]; then
      while IFS= read -r -d '' file; do debs+=("$file"); done < <(files_of "$source" "gpurun-*.deb")
    elif [ -f "$source" ]; then
      debs+=("$(readlink -f "$source")")
    else
      wrong_usage "there is no file or folder $source"
    fi
  done
  [ ${#debs[@]} -gt 0 ] || fail "no package gpurun-*.deb is in $*"
  for file in "${debs[@]}"; do
    name=$(dpkg-deb -f "$file" Package 2>/dev/null) || fail "$file is no Debian package, or is damaged"
    [[ $name == gpurun-* ]] || fail "$file is the package $name. This command updates gpurun's packages only."
    after=$(dpkg-deb -f "$file" Version)
    before=$(package_version "$name")
    [ "$before" = "not installed" ] || dpkg --compare-versions "$after" ge "$before" ||
      fail "$file has version $after, and $before is installed. It may not read the state of the newer one."
  done
  if gpurund_runs && [ -z "$now" ]; then
    running=$(leases)
    [ "${running:-0}" -eq 0 ] ||
      fail "$running leases are in use, and an update ends them. Wait, or use \"update --now\"."
  fi
  before=$(fingerprint)
  umask 022 # Files that packages make are for all users.
  # The operator's settings win over those of the package.
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "${debs[@]}" ||
    fail "the packages were not installed: see above. \"dpkg --configure -a\" ends a broken update."
  systemctl daemon-reload
  if configured; then
    systemctl enable --quiet gpurund
    systemctl restart gpurund ||
      fail "the new gpurund does not start. \"journalctl -u gpurund\" has the reason."
  fi
  after=$(fingerprint)
  [ "$before" = "$after" ] ||
    fail "the key has changed from $before to $after. Restore /var/lib/gpurun from a backup."
  echo "updated to $(package_version gpurun-server). Settings, tokens and the key are the old ones."
}

command_ssh() {
  local keys
  [ $# -eq 1 ] || wrong_usage "ssh needs \"on\" or \"off\""
  case $1 in
    on)
      keys=$(cat "$ROOT"/root/.ssh/authorized_keys "$ROOT"/home/*/.ssh/authorized_keys 2>/dev/null |
        grep -c '^[^#]' || true)
      [ "$keys" -gt 0 ] ||
        fail "nobody could log in: no user has authorized_keys. cloud-init writes them (ssh_authorized_keys)."
      ssh-keygen -A
      systemctl unmask --quiet ssh
      systemctl enable --quiet --now ssh
      ;;
    off)
      systemctl disable --quiet --now ssh
      systemctl mask --quiet ssh
      ;;
    *) wrong_usage "ssh needs \"on\" or \"off\"" ;;
  esac
}

command_reset() {
  local unit user
  if [ $# -ne 1 ] || [ "$1" != --yes ]; then
    wrong_usage "reset ends all leases and forgets settings, tokens, keys and passwords. It needs --yes"
  fi
  systemctl disable --quiet --now gpurund
  systemctl disable --quiet --now ssh || true
  systemctl mask --quiet ssh
  for unit in "$ROOT"/etc/systemd/system/multi-user.target.wants/gpurun-rxe@*; do
    [ ! -e "$unit" ] || systemctl disable --quiet --now "$(basename "$unit")"
  done
  rm -rf "$ROOT"/var/lib/gpurun/* "$ROOT"/var/cache/gpurun/* "$RUN/tokens"
  rm -f "$ROOT"/etc/systemd/network/05-gpurun-*.network "$ROOT"/etc/systemd/network/10-cloud-init-*.network \
    "$ROOT"/etc/cloud/cloud.cfg.d/99-gpurun-network.cfg "$ROOT"/etc/cloud/cloud-init.disabled \
    "$ROOT"/etc/ssh/ssh_host_* "$ROOT"/root/.ssh/authorized_keys "$ROOT"/etc/sudoers.d/90-cloud-init-users
  rm -f "$ROOT"/etc/gpurun/*.pem
  [ ! -e "$ROOT/usr/share/gpurun/gpurund.toml" ] || cp "$ROOT/usr/share/gpurun/gpurund.toml" "$SETTINGS"
  set_setting driver emulated
  write_hostname gpurun
  usermod --password '*' root
  while IFS= read -r user; do
    userdel --remove "$user" 2>/dev/null || fail "user $user is logged in. Log out, and repeat this command."
  done < <(awk -F : '$3 >= 1000 && $3 < 60000 { print $1 }' "$ROOT/etc/passwd")
  cloud-init clean --logs || fail "cloud-init keeps its state: see above"
  # An empty file: the next start makes an identity, and changes no unit.
  : >"$ROOT/etc/machine-id"
  journalctl --quiet --rotate --vacuum-time=1s || true
  rm -f "$STATE/configured"
  echo "The appliance has forgotten its settings. Restart it: the wizard asks again."
}
