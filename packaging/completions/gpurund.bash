# bash completion of gpurund(8), made from --help by packaging/completions/generate. Do not edit it.
_gpurund_servers() {
  local folder=${XDG_CONFIG_HOME:-$HOME/.config}/gpurun
  compgen -W "$(sed -n 's/^\([^ #][^ #]*\).*/\1/p' "$folder/servers" /etc/gpurun/servers 2> /dev/null)" -- "$1"
}
_gpurund() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} path=/ word i
  COMPREPLY=()
  # bash makes words of their own of = and :.
  [ "$current" != = ] || current=
  [ "$before" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      --audit | --cache | --cache-bytes | --config | --confinement | --driver | --fabric | --gpudirect | --listen | --log | --ready-fd | --secret-fd | --secret-file | --spare-level | --spare-workers | --tls-certificate | --tls-key | --tokens | --worker | --worker-memory | --worker-numa | --worker-uids)
        [ "${COMP_WORDS[i + 1]}" != = ] || ((i++))
        ((i++))
        while [ "${COMP_WORDS[i + 1]}" = : ]; do ((i += 2)); done ;;
      -* | = | :) ;;
      *)
        ;;
    esac
  done
  case $path:$before in
    /:--config) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--listen) return ;;
    /:--driver) mapfile -t COMPREPLY < <(compgen -W "real emulated" -- "$current"); return ;;
    /:--worker) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--secret-file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--secret-fd) return ;;
    /:--ready-fd) return ;;
    /:--tls-certificate) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--tls-key) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--tokens) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /:--audit) return ;;
    /:--worker-uids) return ;;
    /:--confinement) mapfile -t COMPREPLY < <(compgen -W "full none" -- "$current"); return ;;
    /:--fabric) return ;;
    /:--gpudirect) return ;;
    /:--worker-memory) return ;;
    /:--worker-numa) mapfile -t COMPREPLY < <(compgen -W "auto off" -- "$current"); return ;;
    /:--spare-workers) return ;;
    /:--spare-level) mapfile -t COMPREPLY < <(compgen -W "mapped initialised" -- "$current"); return ;;
    /:--cache) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    /:--cache-bytes) return ;;
    /:--log) mapfile -t COMPREPLY < <(compgen -W "error warning info debug trace" -- "$current"); return ;;
  esac
  case $path:$current in
    /:-*) mapfile -t COMPREPLY < <(compgen -W "-h --help --config --listen --driver --worker --secret-file --secret-fd --ready-fd --insecure-plaintext --tls --tls-certificate --tls-key --fingerprint --tokens --audit --worker-uids --confinement --fabric --gpudirect --worker-memory --worker-numa --spare-workers --spare-level --cache --cache-bytes --log --verbose --version" -- "$current") ;;
  esac
}
complete -o filenames -o bashdefault -F _gpurund gpurund
