# wizard.sh: the questions of the first start, and the page of status on the consoles. Read by
# gpurun-appliance.
#
# Both run on a terminal that any passer-by may reach. So they never start a shell by themselves: a
# log-in needs root's password, which the operator may leave unset. Keys for signals do nothing.
# shellcheck shell=bash

ANSWER_SECONDS=900 # An unanswered question gives up the lock for the other console.

ask() { # VARIABLE QUESTION DEFAULT
  local answer=""
  IFS= read -r -t "$ANSWER_SECONDS" -p "$2${3:+ [$3]}: " answer || {
    echo
    return 1
  }
  answer=${answer//[^[:print:]]/}
  printf -v "$1" '%s' "${answer:-$3}"
}

ask_secret() { # VARIABLE QUESTION
  local secret=""
  IFS= read -r -s -t "$ANSWER_SECONDS" -p "$2: " secret || {
    echo
    return 1
  }
  echo
  printf -v "$1" '%s' "$secret"
}

# Asks until a check accepts the answer.
ask_valid() { # VARIABLE QUESTION DEFAULT CHECK HINT
  while ask "$1" "$2" "$3"; do
    "$4" "${!1}" && return 0
    echo "  $5"
  done
  return 1
}

is_dhcp_or_address() { [ "$1" = dhcp ] || valid_interface_address "$1"; }
is_address_or_empty() { [ -z "$1" ] || valid_address "$1"; }
is_user_or_empty() { [ -z "$1" ] || valid_user "$1"; }
is_ethernet_device() { ethernet_devices | grep -qxF -- "$1"; }
is_yes_or_no() { [ "$1" = yes ] || [ "$1" = no ]; }
are_addresses() {
  local server
  for server in ${1//,/ }; do valid_address "$server" || return 1; done
}

ask_password() { # VARIABLE
  local first second
  while true; do
    ask_secret first "Root's password for this console (empty: nobody can log in here)" || return 1
    [ -n "$first" ] || break
    ask_secret second "The same password again" || return 1
    [ "$first" != "$second" ] || break
    echo "  The two passwords differ."
  done
  printf -v "$1" '%s' "$first"
}

wizard_questions() {
  local interface address gateway="" dns="" name user password yes arguments
  local hint="a user that gets a token (empty: none)"
  cat <<TEXT

gpurun appliance $(package_version gpurun-server): settings

An empty answer takes the value in [brackets]. Nothing changes before the last question.

TEXT
  interface=$(ethernet_devices | head -n 1)
  [ -n "$interface" ] || {
    echo "This machine has no network device. Add one, and start it again."
    return 1
  }
  if [ "$(ethernet_devices | wc -l)" -gt 1 ]; then
    ask_valid interface "Network device ($(ethernet_devices | tr '\n' ' '))" "$interface" is_ethernet_device \
      "There is no such device." || return 1
  fi
  ask_valid address "Address of $interface: dhcp, or ADDRESS/PREFIX" dhcp is_dhcp_or_address \
    "Answer \"dhcp\", or an address with its prefix, such as 192.168.30.231/24." || return 1
  if [ "$address" != dhcp ]; then
    ask_valid gateway "Gateway (empty: none)" "" is_address_or_empty "This is no address." || return 1
    ask_valid dns "Name servers, with commas (empty: none)" "" are_addresses "These are no addresses." || return 1
  fi
  ask_valid name "Hostname" "$(hostname)" valid_hostname "Letters, digits, - and . are allowed." || return 1
  configured || hint="first user, that gets a token (empty: none)"
  ask_valid user "Name of the $hint" "" is_user_or_empty "Letters, digits and . _ @ - are allowed." || return 1
  ask_password password || return 1

  echo
  echo "  address   $address on $interface${gateway:+, gateway $gateway}${dns:+, name servers $dns}"
  echo "  hostname  $name"
  echo "  user      ${user:-none}"
  echo "  console   $([ -n "$password" ] && echo "log-in with root's password" || echo "no log-in")"
  echo "  GPUs      $(driver_that_fits)"
  ask_valid yes "Apply these settings: yes or no" yes is_yes_or_no "Answer \"yes\" or \"no\"." || return 1
  [ "$yes" = yes ] || return 1

  arguments=(--hostname "$name" --address "$address" --interface "$interface")
  [ -z "$gateway" ] || arguments+=(--gateway "$gateway")
  [ -z "$dns" ] || arguments+=(--dns "$dns")
  [ -z "$user" ] || arguments+=(--user "$user" --token-out console)
  if [ -n "$password" ]; then
    printf '%s\n' "$password" | "$0" configure "${arguments[@]}" --root-password-stdin
  else
    "$0" configure "${arguments[@]}"
  fi || return 1
  # From now on the wizard's settings count, and no disk with other ones.
  touch "$ROOT/etc/cloud/cloud-init.disabled"
}

command_wizard() {
  [ -t 0 ] || fail "the wizard needs a terminal. Scripts use \"gpurun-appliance configure\"."
  mkdir -p "$RUN"
  exec 9>"$RUN/wizard.lock"
  flock -n 9 || fail "the wizard runs on another console. Answer there, or wait 15 minutes."
  wizard_questions || {
    echo "These answers were not applied, or not all of them."
    return 1
  }
  show_tokens
}

# Shows tokens that wait for a reader, until Enter is pressed. They leave memory then.
show_tokens() {
  local file key
  for file in "$RUN"/tokens/*; do
    [ -e "$file" ] || continue
    echo
    echo "The token of $(basename "$file"), shown this once:"
    echo
    echo "  $(cat "$file")"
    echo
    echo "Its user stores it with: gpurun login $(addresses | head -n 1)"
    echo "fingerprint $(fingerprint)"
    echo
    IFS= read -r -p "Press Enter when you have noted it: " key || return 0
    rm -f "$file"
    printf '\033[H\033[2J\033[3J'
  done
}

# The console shows no users and programs.
gpu_line() {
  gpurund_runs || {
    echo "gpurund does not run. \"journalctl -u gpurund\" has the reason"
    return
  }
  gpuctl list --json 2>/dev/null | python3 -IS -c '
import json, sys
gpus = [gpu for line in sys.stdin for gpu in json.loads(line)["gpus"]]
names = sorted({gpu["name"] for gpu in gpus})
print(len(gpus), "x", ", ".join(names) + ",", sum(gpu["lease"] is None for gpu in gpus), "free")' 2>/dev/null ||
    echo "gpurund does not answer"
}

status_page() {
  echo
  echo "gpurun appliance $(hostname)"
  echo
  echo "address      $(addresses | tr '\n' ' ' | grep . || echo none yet)"
  echo "listens on   $(setting listen)"
  echo "fingerprint  $(fingerprint)"
  echo "driver       $(setting driver)"
  echo "GPUs         $(gpu_line)"
  echo "version      $(package_version gpurun-server), kernel $(running_kernel)"
}

command_status() {
  [ $# -eq 0 ] || wrong_usage "status has no arguments"
  status_page
}

root_has_password() {
  [[ $(getent shadow root | cut -d : -f 2) == \$* ]]
}

# Runs a command as root after root's password. su asks and checks, because nobody runs it.
as_root_with_password() { # COMMAND...
  if ! root_has_password; then
    echo "Root has no password, so nobody can log in on this console. ssh, or cloud-init, can set one."
  elif (
    trap - INT QUIT TSTP
    cd /
    setpriv --reuid nobody --regid nogroup --clear-groups su - root "$@"
  ); then
    return 0
  fi
  # The page comes back after a key, or some seconds for the message above.
  IFS= read -r -s -n 1 -t 5 || true
}

# cloud-init configures the appliance, if the machine has a data source for it.
cloud_init_works() {
  [ -e /run/cloud-init/enabled ] && [ ! -e /var/lib/cloud/instance/boot-finished ]
}

command_console() {
  local key page="" new waited=0
  trap '' INT QUIT TSTP
  mkdir -p "$RUN"
  printf '\033[H\033[2J'
  while cloud_init_works && [ "$waited" -lt 900 ]; do
    [ "$waited" -gt 0 ] || echo "cloud-init configures this appliance."
    sleep 1
    waited=$((waited + 1))
  done
  until configured; do
    printf '\ngpurun appliance: not configured yet.\nPress Enter to begin: '
    # Another console may configure it meanwhile.
    until IFS= read -r -t 5 key; do
      [ $? -gt 128 ] || exit 0
      ! configured || break
    done
    configured || ("$0" wizard) || true
  done
  while true; do
    show_tokens
    new=$(status_page)
    if [ "$new" != "$page" ]; then
      page=$new
      printf '\033[H\033[2J%s\n\nKeys: w wizard, s shell (both ask for root'\''s password), r refresh\n' "$page"
    fi
    key=""
    IFS= read -r -s -n 1 -t 30 key || [ $? -gt 128 ] || exit 0
    case $key in
      w) as_root_with_password -c "gpurun-appliance wizard" ;;
      s) as_root_with_password ;;
      r) ;;
      *) continue ;;
    esac
    page=""
  done
}
