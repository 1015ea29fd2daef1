# fish completion of gpurund(8), made from --help by packaging/completions/generate. Do not edit it.
function __gpurund_servers
    set -l folder $HOME/.config
    set -q XDG_CONFIG_HOME; and set folder $XDG_CONFIG_HOME
    sed -n 's/^\([^ #][^ #]*\).*/\1/p' $folder/gpurun/servers /etc/gpurun/servers 2>/dev/null
end
# True if the words before the cursor are those of a subcommand: /, /list, /token/create.
function __gpurund_at
    set -l path /
    set -l value no
    for word in (commandline -opc)[2..-1]
        if test $value = yes; set value no; continue; end
        switch $word
            case --audit --cache --cache-bytes --config --confinement --driver --fabric --gpudirect --listen --log --ready-fd --secret-fd --secret-file --spare-level --spare-workers --tls-certificate --tls-key --tokens --worker --worker-memory --worker-numa --worker-uids
                set value yes
            case '-?*'
            case '*'
                set -l longer (string trim -r -c / $path)/$word
                contains -- $longer ; and set path $longer
        end
    end
    contains -- $path $argv
end
complete -c gpurund -f
complete -c gpurund -n '__gpurund_at /' -s h -l help -d 'Print this help message and exit'
complete -c gpurund -n '__gpurund_at /' -l config -r -F -d 'TOML file with these settings; options override it'
complete -c gpurund -n '__gpurund_at /' -l listen -x -d 'address and port to listen on: HOST[:PORT]'
complete -c gpurund -n '__gpurund_at /' -l driver -x -a 'real emulated' -d 'real, emulated, or a CUDA driver library by absolute path'
complete -c gpurund -n '__gpurund_at /' -l worker -r -F -d 'gpurun-worker; beside this program by default'
complete -c gpurund -n '__gpurund_at /' -l secret-file -r -F -d 'file (mode 0600) with the secret that users must know'
complete -c gpurund -n '__gpurund_at /' -l secret-fd -x -d 'descriptor to read the secret from'
complete -c gpurund -n '__gpurund_at /' -l ready-fd -x -d 'descriptor to write the address to, once this server listens'
complete -c gpurund -n '__gpurund_at /' -l insecure-plaintext -d 'let clients beyond this machine do without TLS, if they have the same option'
complete -c gpurund -n '__gpurund_at /' -l tls -d 'speak TLS only, also within this machine'
complete -c gpurund -n '__gpurund_at /' -l tls-certificate -r -F -d 'PEM file with this server\'s certificate; else it makes one'
complete -c gpurund -n '__gpurund_at /' -l tls-key -r -F -d 'PEM file (mode 0600) with its private key'
complete -c gpurund -n '__gpurund_at /' -l fingerprint -d 'print the fingerprint of this server\'s key, by which clients know it, and end'
complete -c gpurund -n '__gpurund_at /' -l tokens -r -F -d 'file of users\' tokens (gpuctl token); or none'
complete -c gpurund -n '__gpurund_at /' -l audit -x -d 'record of users\' actions, a line each: syslog, none, or a file by absolute path'
complete -c gpurund -n '__gpurund_at /' -l worker-uids -x -d 'users that workers run as when this is root: FIRST-LAST, or none'
complete -c gpurund -n '__gpurund_at /' -l confinement -x -a 'full none' -d 'full, or none: workers can do what this daemon\'s user can'
complete -c gpurund -n '__gpurund_at /' -l fabric -x -d 'RDMA devices or ports that sessions may use, such as mlx5_0:1; nothing is encrypted there'
complete -c gpurund -n '__gpurund_at /' -l gpudirect -x -d 'auto: RDMA devices read large copies into GPU memory; or off'
complete -c gpurund -n '__gpurund_at /' -l worker-memory -x -d 'main memory that one worker may have, such as 16GiB; 0: by its GPUs'
complete -c gpurund -n '__gpurund_at /' -l worker-numa -x -a 'auto off' -d 'auto: workers run on the NUMA node of their GPUs; or off'
complete -c gpurund -n '__gpurund_at /' -l spare-workers -x -d 'workers that are started before there is a lease for them; 1 by default'
complete -c gpurund -n '__gpurund_at /' -l spare-level -x -a 'mapped initialised' -d 'what they have done: mapped (the driver), or initialised (after cuInit)'
complete -c gpurund -n '__gpurund_at /' -l cache -x -a '(__fish_complete_directories)' -d 'folder for code images, so that none is sent twice; or none'
complete -c gpurund -n '__gpurund_at /' -l cache-bytes -x -d 'bytes that they may take, such as 4GiB'
complete -c gpurund -n '__gpurund_at /' -l log -x -a 'error warning info debug trace' -d 'error, warning, info, debug or trace; else GPURUN_LOG'
complete -c gpurund -n '__gpurund_at /' -l verbose -d 'log every connection: --log info'
complete -c gpurund -n '__gpurund_at /' -l version -d 'Display program version information and exit'
