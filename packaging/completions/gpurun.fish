# fish completion of gpurun(1), made from --help by packaging/completions/generate. Do not edit it.
function __gpurun_servers
    set -l folder $HOME/.config
    set -q XDG_CONFIG_HOME; and set folder $XDG_CONFIG_HOME
    sed -n 's/^\([^ #][^ #]*\).*/\1/p' $folder/gpurun/servers /etc/gpurun/servers 2>/dev/null
end
# True if the words before the cursor are those of a subcommand: /, /list, /token/create.
function __gpurun_at
    set -l path /
    set -l value no
    for word in (commandline -opc)[2..-1]
        if test $value = yes; set value no; continue; end
        switch $word
            case --device --fingerprint --secret-file --server-fingerprint --session-folder --timeout --tls-ca --token-file --trace --transport -l -n -s
                set value yes
            case '-?*'
                test $word = --; and set path /program
            case '*'
                if test $path = / -a $word = login; set path /login
                else if test $path = /; set path /program; end
        end
    end
    contains -- $path $argv
end
complete -c gpurun -f
complete -c gpurun -n '__gpurun_at /' -a login -d 'store your token for a server, and make it the default one'
complete -c gpurun -n '__gpurun_at /' -s h -l help -d 'Print this help message and exit'
complete -c gpurun -n '__gpurun_at /' -s n -x -d 'GPUs to lease (default 1)'
complete -c gpurun -n '__gpurun_at /' -s l -x -a '(__gpurun_servers)' -d 'servers; without it the default ones (GPURUN_SERVERS, ~/.config/gpurun/servers, /etc/gpurun/servers), or none: a private one on this machine'
complete -c gpurun -n '__gpurun_at /' -s s -r -F -d 'a file with one HOST[:PORT] a line'
complete -c gpurun -n '__gpurun_at /' -l timeout -x -d 'wait so long for a free GPU (default: do not wait)'
complete -c gpurun -n '__gpurun_at /' -l device -x -a 'real emulated' -d 'device of the private server'
complete -c gpurun -n '__gpurun_at /' -l secret-file -r -F -d 'file (mode 0600) with the server\'s secret; else GPURUN_SECRET_FILE names it'
complete -c gpurun -n '__gpurun_at /' -l token-file -r -F -d 'file (mode 0600) with your token for the servers; else GPURUN_TOKEN_FILE names it, or ~/.config/gpurun has it'
complete -c gpurun -n '__gpurun_at /' -l insecure-plaintext -d 'reach servers beyond this machine without TLS; they must allow it, too'
complete -c gpurun -n '__gpurun_at /' -l tls -d 'speak TLS within this machine, too'
complete -c gpurun -n '__gpurun_at /' -l tls-ca -r -F -d 'PEM file with the authorities that sign servers\' certificates'
complete -c gpurun -n '__gpurun_at /' -l server-fingerprint -x -d 'the server\'s key, as its gpurund --fingerprint prints it'
complete -c gpurun -n '__gpurun_at /' -l transport -x -d 'transports that sessions may use, best first: shm, rdma, tcp'
complete -c gpurun -n '__gpurun_at /' -l trust-fabric -d 'let sessions go over RDMA, which encrypts nothing; =mlx5_0:1,... names ports'
complete -c gpurun -n '__gpurun_at /' -l stats -d 'print counts and waiting times at the end'
complete -c gpurun -n '__gpurun_at /' -l trace -x -a '(__fish_complete_directories)' -d 'each process leaves what it did there; gpuctl trace makes a timeline of it'
complete -c gpurun -n '__gpurun_at /' -l session-folder -x -a '(__fish_complete_directories)' -d 'a folder through which programs in containers use the GPU: mount it there'
complete -c gpurun -n '__gpurun_at /' -s q -d 'print nothing but warnings'
complete -c gpurun -n '__gpurun_at /' -l version -d 'Display program version information and exit'
complete -c gpurun -n '__gpurun_at /login' -s h -l help -d 'Print this help message and exit'
complete -c gpurun -n '__gpurun_at /login' -l fingerprint -l server-fingerprint -x -d 'the server\'s key, as its operator names it: it is not asked about then'
complete -c gpurun -n '__gpurun_at /login' -l tls-ca -r -F -d 'PEM file with the authorities that sign servers\' certificates'
complete -c gpurun -n '__gpurun_at /login' -l tls -d 'speak TLS within this machine, too'
complete -c gpurun -n '__gpurun_at /login' -l insecure-plaintext -d 'reach servers beyond this machine without TLS; they must allow it, too'
complete -c gpurun -n '__gpurun_at /login' -x -a '(__gpurun_servers)'
complete -c gpurun -n '__gpurun_at / /program' -x -a '(__fish_complete_subcommand -- --device --fingerprint --secret-file --server-fingerprint --session-folder --timeout --tls-ca --token-file --trace --transport -l -n -s)'
