# bash completion of gpuctl(1), made from --help by packaging/completions/generate. Do not edit it.
_gpuctl_servers() {
  local folder=${XDG_CONFIG_HOME:-$HOME/.config}/gpurun
  compgen -W "$(sed -n 's/^\([^ #][^ #]*\).*/\1/p' "$folder/servers" /etc/gpurun/servers 2> /dev/null)" -- "$1"
}
_gpuctl() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} path=/ word i
  COMPREPLY=()
  # bash makes words of their own of = and :.
  [ "$current" != = ] || current=
  [ "$before" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      --expires | --link-mbit | --note | --seconds | --secret-file | --server-fingerprint | --tls-ca | --token-file | --tokens | --user | -l | -o | -s)
        [ "${COMP_WORDS[i + 1]}" != = ] || ((i++))
        ((i++))
        while [ "${COMP_WORDS[i + 1]}" = : ]; do ((i += 2)); done ;;
      -* | = | :) ;;
      *)
        case ${path%/}/$word in
          /list | /report | /trace | /netperf | /health | /info | /topo | /token | /token/create | /token/list | /token/revoke) path=${path%/}/$word ;;
        esac ;;
    esac
  done
  case $path:$before in
    /list:-l) mapfile -t COMPREPLY < <(_gpuctl_servers "$current"); return ;;
    /list:-s) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /list:--secret-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /list:--token-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /list:--tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /list:--server-fingerprint) return ;;
    /report:-l) mapfile -t COMPREPLY < <(_gpuctl_servers "$current"); return ;;
    /report:-s) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /report:--secret-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /report:--token-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /report:--tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /report:--server-fingerprint) return ;;
    /report:-o) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /trace:-o) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /netperf:-l) mapfile -t COMPREPLY < <(_gpuctl_servers "$current"); return ;;
    /netperf:-s) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /netperf:--secret-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /netperf:--token-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /netperf:--tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /netperf:--server-fingerprint) return ;;
    /netperf:--seconds) return ;;
    /netperf:--link-mbit) return ;;
    /health:-l) mapfile -t COMPREPLY < <(_gpuctl_servers "$current"); return ;;
    /health:-s) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /health:--secret-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /health:--token-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /health:--tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /health:--server-fingerprint) return ;;
    /info:-l) mapfile -t COMPREPLY < <(_gpuctl_servers "$current"); return ;;
    /info:-s) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /info:--secret-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /info:--token-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /info:--tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /info:--server-fingerprint) return ;;
    /token/create:--tokens) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /token/create:--expires) return ;;
    /token/create:--note) return ;;
    /token/create:--server-fingerprint) return ;;
    /token/create:-o) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /token/list:--tokens) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /token/revoke:--tokens) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /token/revoke:--user) return ;;
  esac
  case $path:$current in
    /:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help --version" -- "$current") ;;
    /:*) mapfile -t COMPREPLY < <(compgen -W "list report trace netperf health info topo token" -- "$current") ;;
    /list:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help -l -s --secret-file --token-file --insecure-plaintext --tls --tls-ca --server-fingerprint --json" -- "$current") ;;
    /report:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help -l -s --secret-file --token-file --insecure-plaintext --tls --tls-ca --server-fingerprint -o" -- "$current") ;;
    /trace:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help -o" -- "$current") ;;
    /trace:*) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    /netperf:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help -l -s --secret-file --token-file --insecure-plaintext --tls --tls-ca --server-fingerprint --trust-fabric --seconds --link-mbit --json" -- "$current") ;;
    /netperf:*) mapfile -t COMPREPLY < <(_gpuctl_servers "$current") ;;
    /health:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help -l -s --secret-file --token-file --insecure-plaintext --tls --tls-ca --server-fingerprint --trust-fabric --local --need-server --json" -- "$current") ;;
    /health:*) mapfile -t COMPREPLY < <(_gpuctl_servers "$current") ;;
    /info:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help -l -s --secret-file --token-file --insecure-plaintext --tls --tls-ca --server-fingerprint --trust-fabric --json" -- "$current") ;;
    /info:*) mapfile -t COMPREPLY < <(_gpuctl_servers "$current") ;;
    /topo:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help --json" -- "$current") ;;
    /token:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help" -- "$current") ;;
    /token:*) mapfile -t COMPREPLY < <(compgen -W "create list revoke" -- "$current") ;;
    /token/create:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help --tokens --expires --note --server-fingerprint -o" -- "$current") ;;
    /token/list:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help --tokens --json" -- "$current") ;;
    /token/revoke:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help --tokens --user --keep-running" -- "$current") ;;
  esac
}
complete -o filenames -o bashdefault -F _gpuctl gpuctl
