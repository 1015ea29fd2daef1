# bash completion of gpurun(1), made from --help by packaging/completions/generate. Do not edit it.
_gpurun_servers() {
  local folder=${XDG_CONFIG_HOME:-$HOME/.config}/gpurun
  compgen -W "$(sed -n 's/^\([^ #][^ #]*\).*/\1/p' "$folder/servers" /etc/gpurun/servers 2> /dev/null)" -- "$1"
}
_gpurun() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} path=/ word i
  COMPREPLY=()
  # bash makes words of their own of = and :.
  [ "$current" != = ] || current=
  [ "$before" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      --device | --fingerprint | --secret-file | --server-fingerprint | --session-folder | --timeout | --tls-ca | --token-file | --trace | --transport | -l | -n | -s)
        [ "${COMP_WORDS[i + 1]}" != = ] || ((i++))
        ((i++))
        while [ "${COMP_WORDS[i + 1]}" = : ]; do ((i += 2)); done ;;
      --) ((i++)); break ;;
      -* | = | :) ;;
      *)
        case ${path%/}/$word in
          /login) path=${path%/}/$word ;;
          *) if [ "$path" = / ]; then break; fi ;;
        esac ;;
    esac
  done
  # The program has begun at word i, or begins with this word.
  if [ "$path" = / ] && { ((i < COMP_CWORD)) || [ "${COMP_WORDS[COMP_CWORD - 1]}" = -- ]; }; then
    if declare -F _command_offset > /dev/null; then
      _command_offset "$i"
    else
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
    return
  fi
  case $path:$before in
    /:-n) return ;;
    /:-l) mapfile -t COMPREPLY < <(_gpurun_servers "$current"); return ;;
    /:-s) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--timeout) return ;;
    /:--device) mapfile -t COMPREPLY < <(compgen -W "real emulated" -- "$current"); return ;;
    /:--secret-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--token-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--server-fingerprint) return ;;
    /:--transport) return ;;
    /:--trace) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    /:--session-folder) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    /login:--fingerprint | /login:--server-fingerprint) return ;;
    /login:--tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
  esac
  case $path:$current in
    /:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help -n -l -s --timeout --device --secret-file --token-file --insecure-plaintext --tls --tls-ca --server-fingerprint --transport --trust-fabric --stats --trace --session-folder -q --version" -- "$current") ;;
    /:*) mapfile -t COMPREPLY < <(compgen -c -W "login" -- "$current") ;;
    /login:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help --fingerprint --server-fingerprint --tls-ca --tls --insecure-plaintext" -- "$current") ;;
    /login:*) mapfile -t COMPREPLY < <(_gpurun_servers "$current") ;;
  esac
}
complete -o filenames -o bashdefault -F _gpurun gpurun
