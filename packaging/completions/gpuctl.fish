# fish completion of gpuctl(1), made from --help by packaging/completions/generate. Do not edit it.
function __gpuctl_servers
    set -l folder $HOME/.config
    set -q XDG_CONFIG_HOME; and set folder $XDG_CONFIG_HOME
    sed -n 's/^\([^ #][^ #]*\).*/\1/p' $folder/gpurun/servers /etc/gpurun/servers 2>/dev/null
end
# True if the words before the cursor are those of a subcommand: /, /list, /token/create.
function __gpuctl_at
    set -l path /
    set -l value no
    for word in (commandline -opc)[2..-1]
        if test $value = yes; set value no; continue; end
        switch $word
            case --expires --link-mbit --note --seconds --secret-file --server-fingerprint --tls-ca --token-file --tokens --user -l -o -s
                set value yes
            case '-?*'
            case '*'
                set -l longer (string trim -r -c / $path)/$word
                contains -- $longer /list /report /trace /netperf /health /info /topo /token /token/create /token/list /token/revoke; and set path $longer
        end
    end
    contains -- $path $argv
end
complete -c gpuctl -f
complete -c gpuctl -n '__gpuctl_at /' -a list -d 'the servers\' GPUs and their holders'
complete -c gpuctl -n '__gpuctl_at /' -a report -d 'one file with what a bug report needs'
complete -c gpuctl -n '__gpuctl_at /' -a trace -d 'a timeline of what gpurun --trace has recorded'
complete -c gpuctl -n '__gpuctl_at /' -a netperf -d 'what sessions to a server can do, over each transport'
complete -c gpuctl -n '__gpuctl_at /' -a health -d 'checks this machine and servers, with a remedy for each fault'
complete -c gpuctl -n '__gpuctl_at /' -a info -d 'transports, devices and limits, and which transport a session would use'
complete -c gpuctl -n '__gpuctl_at /' -a topo -d 'how far this machine\'s GPUs and network devices are apart'
complete -c gpuctl -n '__gpuctl_at /' -a token -d 'tokens of the users of this machine\'s GPUs'
complete -c gpuctl -n '__gpuctl_at /' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /' -l version -d 'Display program version information and exit'
complete -c gpuctl -n '__gpuctl_at /list' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /list' -s l -x -a '(__gpuctl_servers)' -d 'servers; else the default ones, else that of this machine'
complete -c gpuctl -n '__gpuctl_at /list' -s s -r -F -d 'a file with one HOST[:PORT] a line'
complete -c gpuctl -n '__gpuctl_at /list' -l secret-file -r -F -d 'file (mode 0600) with the servers\' secret; else GPURUN_SECRET_FILE names it'
complete -c gpuctl -n '__gpuctl_at /list' -l token-file -r -F -d 'file (mode 0600) with your token for them; else GPURUN_TOKEN_FILE names it, or ~/.config/gpurun has it'
complete -c gpuctl -n '__gpuctl_at /list' -l insecure-plaintext -d 'reach servers beyond this machine without TLS; they must allow it, too'
complete -c gpuctl -n '__gpuctl_at /list' -l tls -d 'speak TLS within this machine, too'
complete -c gpuctl -n '__gpuctl_at /list' -l tls-ca -r -F -d 'PEM file with the authorities that sign servers\' certificates'
complete -c gpuctl -n '__gpuctl_at /list' -l server-fingerprint -x -d 'the server\'s key, as its gpurund --fingerprint prints it'
complete -c gpuctl -n '__gpuctl_at /list' -l json -d 'a line of JSON for each server, with what gpurund itself holds'
complete -c gpuctl -n '__gpuctl_at /report' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /report' -s l -x -a '(__gpuctl_servers)' -d 'servers; else the default ones, else that of this machine'
complete -c gpuctl -n '__gpuctl_at /report' -s s -r -F -d 'a file with one HOST[:PORT] a line'
complete -c gpuctl -n '__gpuctl_at /report' -l secret-file -r -F -d 'file (mode 0600) with the servers\' secret; else GPURUN_SECRET_FILE names it'
complete -c gpuctl -n '__gpuctl_at /report' -l token-file -r -F -d 'file (mode 0600) with your token for them; else GPURUN_TOKEN_FILE names it, or ~/.config/gpurun has it'
complete -c gpuctl -n '__gpuctl_at /report' -l insecure-plaintext -d 'reach servers beyond this machine without TLS; they must allow it, too'
complete -c gpuctl -n '__gpuctl_at /report' -l tls -d 'speak TLS within this machine, too'
complete -c gpuctl -n '__gpuctl_at /report' -l tls-ca -r -F -d 'PEM file with the authorities that sign servers\' certificates'
complete -c gpuctl -n '__gpuctl_at /report' -l server-fingerprint -x -d 'the server\'s key, as its gpurund --fingerprint prints it'
complete -c gpuctl -n '__gpuctl_at /report' -s o -r -F -d 'where to write it; - is stdout'
complete -c gpuctl -n '__gpuctl_at /trace' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /trace' -s o -r -F -d 'where to write it; - is stdout'
complete -c gpuctl -n '__gpuctl_at /trace' -F
complete -c gpuctl -n '__gpuctl_at /netperf' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /netperf' -s l -x -a '(__gpuctl_servers)' -d 'servers; else the default ones, else that of this machine'
complete -c gpuctl -n '__gpuctl_at /netperf' -s s -r -F -d 'a file with one HOST[:PORT] a line'
complete -c gpuctl -n '__gpuctl_at /netperf' -l secret-file -r -F -d 'file (mode 0600) with the servers\' secret; else GPURUN_SECRET_FILE names it'
complete -c gpuctl -n '__gpuctl_at /netperf' -l token-file -r -F -d 'file (mode 0600) with your token for them; else GPURUN_TOKEN_FILE names it, or ~/.config/gpurun has it'
complete -c gpuctl -n '__gpuctl_at /netperf' -l insecure-plaintext -d 'reach servers beyond this machine without TLS; they must allow it, too'
complete -c gpuctl -n '__gpuctl_at /netperf' -l tls -d 'speak TLS within this machine, too'
complete -c gpuctl -n '__gpuctl_at /netperf' -l tls-ca -r -F -d 'PEM file with the authorities that sign servers\' certificates'
complete -c gpuctl -n '__gpuctl_at /netperf' -l server-fingerprint -x -d 'the server\'s key, as its gpurund --fingerprint prints it'
complete -c gpuctl -n '__gpuctl_at /netperf' -l trust-fabric -d 'sessions may go over RDMA, which encrypts nothing; =mlx5_0:1,... names ports'
complete -c gpuctl -n '__gpuctl_at /netperf' -l seconds -x -d 'how long each transport is measured'
complete -c gpuctl -n '__gpuctl_at /netperf' -l link-mbit -x -d 'the speed of the link in Mbit/s, if that of the network device is not it'
complete -c gpuctl -n '__gpuctl_at /netperf' -l json -d 'a line of JSON for each server'
complete -c gpuctl -n '__gpuctl_at /netperf' -x -a '(__gpuctl_servers)'
complete -c gpuctl -n '__gpuctl_at /health' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /health' -s l -x -a '(__gpuctl_servers)' -d 'servers; else the default ones, else that of this machine'
complete -c gpuctl -n '__gpuctl_at /health' -s s -r -F -d 'a file with one HOST[:PORT] a line'
complete -c gpuctl -n '__gpuctl_at /health' -l secret-file -r -F -d 'file (mode 0600) with the servers\' secret; else GPURUN_SECRET_FILE names it'
complete -c gpuctl -n '__gpuctl_at /health' -l token-file -r -F -d 'file (mode 0600) with your token for them; else GPURUN_TOKEN_FILE names it, or ~/.config/gpurun has it'
complete -c gpuctl -n '__gpuctl_at /health' -l insecure-plaintext -d 'reach servers beyond this machine without TLS; they must allow it, too'
complete -c gpuctl -n '__gpuctl_at /health' -l tls -d 'speak TLS within this machine, too'
complete -c gpuctl -n '__gpuctl_at /health' -l tls-ca -r -F -d 'PEM file with the authorities that sign servers\' certificates'
complete -c gpuctl -n '__gpuctl_at /health' -l server-fingerprint -x -d 'the server\'s key, as its gpurund --fingerprint prints it'
complete -c gpuctl -n '__gpuctl_at /health' -l trust-fabric -d 'sessions may go over RDMA, which encrypts nothing; =mlx5_0:1,... names ports'
complete -c gpuctl -n '__gpuctl_at /health' -l local -d 'check this machine only, and no server'
complete -c gpuctl -n '__gpuctl_at /health' -l need-server -d 'a machine for which no server is named fails'
complete -c gpuctl -n '__gpuctl_at /health' -l json -d 'one object of JSON'
complete -c gpuctl -n '__gpuctl_at /health' -x -a '(__gpuctl_servers)'
complete -c gpuctl -n '__gpuctl_at /info' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /info' -s l -x -a '(__gpuctl_servers)' -d 'servers; else the default ones, else that of this machine'
complete -c gpuctl -n '__gpuctl_at /info' -s s -r -F -d 'a file with one HOST[:PORT] a line'
complete -c gpuctl -n '__gpuctl_at /info' -l secret-file -r -F -d 'file (mode 0600) with the servers\' secret; else GPURUN_SECRET_FILE names it'
complete -c gpuctl -n '__gpuctl_at /info' -l token-file -r -F -d 'file (mode 0600) with your token for them; else GPURUN_TOKEN_FILE names it, or ~/.config/gpurun has it'
complete -c gpuctl -n '__gpuctl_at /info' -l insecure-plaintext -d 'reach servers beyond this machine without TLS; they must allow it, too'
complete -c gpuctl -n '__gpuctl_at /info' -l tls -d 'speak TLS within this machine, too'
complete -c gpuctl -n '__gpuctl_at /info' -l tls-ca -r -F -d 'PEM file with the authorities that sign servers\' certificates'
complete -c gpuctl -n '__gpuctl_at /info' -l server-fingerprint -x -d 'the server\'s key, as its gpurund --fingerprint prints it'
complete -c gpuctl -n '__gpuctl_at /info' -l trust-fabric -d 'sessions may go over RDMA, which encrypts nothing; =mlx5_0:1,... names ports'
complete -c gpuctl -n '__gpuctl_at /info' -l json -d 'one object of JSON'
complete -c gpuctl -n '__gpuctl_at /info' -x -a '(__gpuctl_servers)'
complete -c gpuctl -n '__gpuctl_at /topo' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /topo' -l json -d 'one object of JSON'
complete -c gpuctl -n '__gpuctl_at /token' -a create -d 'makes one, and prints it once'
complete -c gpuctl -n '__gpuctl_at /token' -a list -d 'all tokens, without their secrets'
complete -c gpuctl -n '__gpuctl_at /token' -a revoke -d 'they open nothing any more'
complete -c gpuctl -n '__gpuctl_at /token' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /token/create' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /token/create' -l tokens -r -F -d 'gpurund\'s file of tokens, if it is not the default one'
complete -c gpuctl -n '__gpuctl_at /token/create' -l expires -x -d 'how long it opens anything: 12h, 90d, 2w'
complete -c gpuctl -n '__gpuctl_at /token/create' -l note -x -d 'a line about it, for the list'
complete -c gpuctl -n '__gpuctl_at /token/create' -l server-fingerprint -x -d 'the server\'s key (own: that of this machine\'s gpurund), for the user\'s first link'
complete -c gpuctl -n '__gpuctl_at /token/create' -s o -r -F -d 'a new file for it (mode 0600), instead of stdout'
complete -c gpuctl -n '__gpuctl_at /token/create' -x
complete -c gpuctl -n '__gpuctl_at /token/list' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /token/list' -l tokens -r -F -d 'gpurund\'s file of tokens, if it is not the default one'
complete -c gpuctl -n '__gpuctl_at /token/list' -l json -d 'a line of JSON for each'
complete -c gpuctl -n '__gpuctl_at /token/revoke' -s h -l help -d 'Print this help message and exit'
complete -c gpuctl -n '__gpuctl_at /token/revoke' -l tokens -r -F -d 'gpurund\'s file of tokens, if it is not the default one'
complete -c gpuctl -n '__gpuctl_at /token/revoke' -l user -x -d 'all of that user\'s'
complete -c gpuctl -n '__gpuctl_at /token/revoke' -l keep-running -d 'leases that they hold may go on'
complete -c gpuctl -n '__gpuctl_at /token/revoke' -x
