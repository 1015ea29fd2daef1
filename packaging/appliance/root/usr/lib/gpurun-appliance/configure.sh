# configure.sh: "gpurun-appliance configure" and "token". Read by gpurun-appliance.
# shellcheck shell=bash

configure_usage() {
  cat <<'USAGE'
gpurun-appliance configure [options]: applies settings, starts gpurund and ends the wizard

  --hostname NAME         the name of this machine
  --address dhcp|ADDRESS/PREFIX
                          the address of the network device
  --interface DEVICE      that device. Default: the first Ethernet device
  --gateway ADDRESS       the router, for a fixed address
  --dns ADDRESS[,...]     name servers, for a fixed address
  --listen HOST[:PORT]    where gpurund listens. Default: 0.0.0.0:4790
  --driver auto|real|emulated
                          auto: real, if a GPU and NVIDIA's driver are there
  --user NAME             a user, who gets a token
  --token-out FILE|-|console
                          the token goes to a new file, to stdout, or to the consoles until a key is
                          pressed there. Default: -
  --root-password-stdin   root's password for the console, one line on stdin

What no option names stays as it is. cloud-init sets hostname and network by itself.
USAGE
}

valid_hostname() { # NAME
  local label="[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
  [[ ${#1} -le 253 && $1 =~ ^$label(\.$label)*$ ]]
}

valid_user() { # NAME
  [[ ${#1} -le 64 && $1 =~ ^[A-Za-z0-9][A-Za-z0-9._@-]*$ ]]
}

valid_address() { # ADDRESS
  python3 -IS -c 'import ipaddress, sys; ipaddress.ip_address(sys.argv[1])' "$1" 2>/dev/null
}

valid_interface_address() { # ADDRESS/PREFIX
  [[ $1 == */* ]] &&
    python3 -IS -c 'import ipaddress, sys; ipaddress.ip_interface(sys.argv[1])' "$1" 2>/dev/null
}

ethernet_devices() {
  local device
  for device in "$ROOT"/sys/class/net/*; do
    [ -e "$device/device" ] && [ "$(cat "$device/type")" = 1 ] && basename "$device"
  done
  return 0
}

write_network() { # INTERFACE ADDRESS GATEWAY DNS
  local file=$ROOT/etc/systemd/network/05-gpurun-$1.network server
  rm -f "$ROOT"/etc/systemd/network/05-gpurun-*.network
  {
    echo "# Written by gpurun-appliance configure."
    printf '[Match]\nName=%s\n\n[Network]\n' "$1"
    if [ "$2" = dhcp ]; then
      printf 'DHCP=yes\n\n[DHCPv4]\nClientIdentifier=mac\n'
    else
      echo "Address=$2"
      [ -z "$3" ] || echo "Gateway=$3"
      for server in ${4//,/ }; do echo "DNS=$server"; done
    fi
  } >"$file"
  chmod 0644 "$file"
  # cloud-init must not write another file at the next start.
  echo 'network: {config: disabled}' >"$ROOT/etc/cloud/cloud.cfg.d/99-gpurun-network.cfg"
  networkctl reload
  networkctl reconfigure "$1"
}

has_address() {
  [ -n "$(addresses)" ]
}

write_hostname() { # NAME
  hostnamectl set-hostname "$1"
  sed -i '/^127\.0\.1\.1[[:space:]]/d' "$ROOT/etc/hosts"
  printf '127.0.1.1\t%s\n' "$1" >>"$ROOT/etc/hosts"
}

# Makes a token and hands it to FILE, "-" or "console". It names this server's key, so that its user
# need not compare a fingerprint.
hand_over_token() { # USER TARGET
  local key
  key=$(fingerprint)
  mkdir -p "$RUN/tokens"
  case $2 in
    -) gpuctl token create "$1" --server-fingerprint "$key" ;;
    console)
      # In memory only. The consoles show the files of this folder until Enter is pressed.
      rm -f "$RUN/tokens/$1"
      gpuctl token create "$1" --server-fingerprint "$key" -o "$RUN/tokens/$1"
      ;;
    *) gpuctl token create "$1" --server-fingerprint "$key" -o "$2" ;;
  esac
}

gpurund_runs() {
  systemctl is-active --quiet gpurund
}

command_token() {
  [ $# -eq 1 ] || [ $# -eq 2 ] || wrong_usage "token needs USER, and may have FILE or \"console\""
  valid_user "$1" || wrong_usage "\"$1\" is no name of a user: letters, digits and . _ @ - are allowed"
  hand_over_token "$1" "${2:--}"
}

command_configure() {
  local hostname="" address="" interface="" gateway="" dns="" listen="0.0.0.0:4790" driver=auto
  local user="" token_out=- password="" read_password="" server
  while [ $# -gt 0 ]; do
    case $1 in
      --root-password-stdin)
        read_password=yes
        shift
        continue
        ;;
      --hostname | --address | --interface | --gateway | --dns) ;;
      --listen | --driver | --user | --token-out) ;;
      *) wrong_usage "configure has no option \"$1\"" ;;
    esac
    [ $# -ge 2 ] || wrong_usage "$1 needs a value"
    case $1 in
      --hostname) hostname=$2 ;;
      --address) address=$2 ;;
      --interface) interface=$2 ;;
      --gateway) gateway=$2 ;;
      --dns) dns=$2 ;;
      --listen) listen=$2 ;;
      --driver) driver=$2 ;;
      --user) user=$2 ;;
      --token-out) token_out=$2 ;;
    esac
    shift 2
  done

  # All values are checked before anything changes.
  [ -z "$hostname" ] || valid_hostname "$hostname" || wrong_usage "\"$hostname\" is no hostname"
  [ -z "$user" ] || valid_user "$user" ||
    wrong_usage "\"$user\" is no name of a user: letters, digits and . _ @ - are allowed"
  [[ $listen =~ ^[]a-zA-Z0-9.:[-]+$ ]] || wrong_usage "--listen \"$listen\" is no HOST[:PORT]"
  case $driver in auto | real | emulated) ;; *) wrong_usage "--driver is auto, real or emulated" ;; esac
  if [ -n "$address" ]; then
    [ "$address" = dhcp ] || valid_interface_address "$address" ||
      wrong_usage "--address \"$address\" is neither \"dhcp\" nor ADDRESS/PREFIX, such as 192.168.30.231/24"
    [ "$address" != dhcp ] || [ -z "$gateway$dns" ] ||
      wrong_usage "--gateway and --dns need a fixed --address"
    [ -z "$gateway" ] || valid_address "$gateway" || wrong_usage "--gateway \"$gateway\" is no address"
    for server in ${dns//,/ }; do
      valid_address "$server" || wrong_usage "--dns \"$server\" is no address"
    done
    interface=${interface:-$(ethernet_devices | head -n 1)}
    [ -n "$interface" ] || fail "this machine has no Ethernet device. Add one and start it again."
    [ -e "$ROOT/sys/class/net/$interface" ] || wrong_usage "there is no network device \"$interface\""
  else
    [ -z "$gateway$dns$interface" ] || wrong_usage "--interface, --gateway and --dns need --address"
  fi
  case $token_out in
    - | console) ;;
    /*) [ ! -e "$ROOT$token_out" ] || wrong_usage "--token-out $token_out exists already" ;;
    *) wrong_usage "--token-out is an absolute path, \"-\" or \"console\"" ;;
  esac
  if [ -n "$read_password" ]; then
    IFS= read -r password || [ -n "$password" ] || wrong_usage "--root-password-stdin found no line on stdin"
    [ -n "$password" ] || wrong_usage "an empty password would admit everybody"
  fi

  [ -z "$hostname" ] || write_hostname "$hostname"
  [ -z "$address" ] || write_network "$interface" "$address" "$gateway" "$dns"
  [ -z "$password" ] || printf 'root:%s\n' "$password" | chpasswd
  [ "$driver" != auto ] || driver=$(driver_that_fits)
  set_setting listen "$listen"
  set_setting driver "$driver"
  systemctl enable --quiet gpurund
  systemctl restart gpurund ||
    fail "gpurund does not start with these settings. \"journalctl -u gpurund\" has the reason."
  [ -z "$user" ] || hand_over_token "$user" "$token_out" || fail "no token was made for $user"
  mkdir -p "$STATE"
  date -u +%FT%TZ >"$STATE/configured"
  [ "$address" != dhcp ] || wait_for 20 has_address ||
    echo "gpurun-appliance: no address yet on $interface. Check its cable, and the DHCP server." >&2
}
