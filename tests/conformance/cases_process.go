//go:build linux

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// processCases are about the process rather than the file system: what it inherits, how it ends.
func processCases() []Case {
	cases := []Case{
		{Name: "process/exit 1", Line: "$R $PROBE", Exit: 1},
		{Name: "process/exit 126", Line: "$R --unshare-pid $PROBE", Exit: 126},
		{Name: "process/exit 255", Line: "$R $PROBE", Exit: 255},
		{Name: "process/exit 255 as-pid-1", Line: "$R --unshare-pid --as-pid-1 $PROBE", Exit: 255},
		{Name: "process/exit of a shell", Line: "$R sh -c 'exit 42'"},
		{Name: "process/standard output and error", Line: "$R sh -c 'echo out; echo err >&2; exit 3'"},
		{Name: "process/standard input", Line: "$R sh -c 'cat; cat /proc/self/fd/0' {0=pipe:typed}"},
		{Name: "process/script without interpreter line", Line: "--bind / / --file {pipe:echo ran \"$0\" $1\n} $W/script --chmod 0755 $W/script $W/script one"},
		{Name: "process/script with interpreter", Line: "$R --tmpfs /mnt --perms 0755 --file {pipe:#!/bin/sh\necho $0 $1\n} /mnt/script /mnt/script one"},
		{Name: "process/script with missing interpreter", Line: "$R --tmpfs /mnt --perms 0755 --file {pipe:#!/no/such\n} /mnt/script /mnt/script"},
		{Name: "process/orphan lives on", Line: "$R sh -c 'sleep 99 >/dev/null 2>&1 <&- & exec $0' $PROBE"},
		{Name: "process/orphan unshare-pid", Line: "$R --unshare-pid sh -c 'sleep 99 >/dev/null 2>&1 <&- & exec $0' $PROBE"},
		{Name: "process/orphan unshare-pid die-with-parent", Line: "$R --unshare-pid --die-with-parent sh -c 'sleep 99 >/dev/null 2>&1 <&- & exec $0' $PROBE"},
		{Name: "process/orphan as-pid-1", Line: "$R --unshare-pid --as-pid-1 sh -c 'sleep 99 >/dev/null 2>&1 <&- & exec $0' $PROBE"},
		{Name: "process/orphan with lock-file", Line: "$R --lock-file $W/lock sh -c 'sleep 99 >/dev/null 2>&1 <&- & exec $0' $PROBE"},
		{Name: "process/zombies are reaped", Line: "$R --unshare-pid sh -c 'for i in 1 2 3; do sh -c \"true & true\"; done; exec $0' $PROBE"},
		{Name: "process/child of the shell", Line: "$R --unshare-pid sh -c '$0; exit $?' $PROBE", Exit: 9},
		{Name: "process/inherits descriptors", Line: "$R $PROBE {7=pipe:x} {9=open:$W/d} {12=sync} {200=memfd:y}"},
		{Name: "process/inherits descriptors unshare-pid", Line: "$R --unshare-pid $PROBE {7=pipe:x} {12=sync}"},
		{Name: "process/inherits descriptors lock-file", Line: "$R --lock-file $W/lock $PROBE {7=pipe:x} {12=sync}"},
		{Name: "process/inherits every low descriptor", Line: "$R --unshare-all $PROBE {3=pipe:x} {4=pipe:x} {5=pipe:x} {6=pipe:x} {7=pipe:x} {8=pipe:x} {9=pipe:x} {10=pipe:x} {11=pipe:x} {12=pipe:x} {13=pipe:x} {14=pipe:x} {15=pipe:x} {16=pipe:x}"},
		{Name: "process/consumed descriptors are closed", Line: "--args {args:--ro-bind / /} --tmpfs /mnt --file {pipe:x} /mnt/f --ro-bind-data {pipe:x} /mnt/g --seccomp {bpf:allow} --block-fd {pipe:x} --info-fd {i=out} --json-status-fd {j=out} --bind-fd {open:$W/d} /mnt/h $PROBE"},
		{Name: "process/one descriptor for two options", Line: "$R --info-fd {a=out} --json-status-fd {a} $PROBE"},
		{Name: "process/standard error for info", Line: "$R --info-fd 2 $PROBE"},
		{Name: "process/status on standard output", Line: "$R --json-status-fd 1 sh -c 'echo mine'"},

		{Name: "process/chld ignored", Line: "$R --unshare-pid $PROBE", Under: "env --ignore-signal=CHLD"},
		{Name: "process/chld ignored plain", Line: "$R sh -c 'exit 5'", Under: "env --ignore-signal=CHLD"},
		{Name: "process/signals ignored", Line: "$R $PROBE", Under: "env --ignore-signal=INT --ignore-signal=TERM --ignore-signal=PIPE --ignore-signal=USR1"},
		{Name: "process/signals ignored unshare-pid", Line: "$R --unshare-pid $PROBE", Under: "env --ignore-signal=HUP --ignore-signal=QUIT"},
		{Name: "process/uid 0 with another gid", Line: "$R --unshare-user --uid 0 --gid 1000 $PROBE"},
		{Name: "process/directory the command may not enter", Line: "--ro-bind $PROBE /probe --perms 0600 --dir $W /probe"},
		{Name: "process/directory that is a source too", Line: "--chdir $W/d --bind-try d /mnt/x $PROBE"},
		{Name: "process/signals blocked", Line: "$R $PROBE", Under: "env --block-signal=INT --block-signal=TERM --block-signal=USR2"},
		{Name: "process/signals blocked unshare-pid", Line: "$R --unshare-pid $PROBE", Under: "env --block-signal=CHLD --block-signal=TERM"},
		{Name: "process/signals blocked as-pid-1", Line: "$R --unshare-pid --as-pid-1 $PROBE", Under: "env --block-signal=TERM"},
		{Name: "process/signals ignored and blocked", Line: "$R $PROBE", Under: "env --ignore-signal=INT --ignore-signal=HUP --block-signal=INT --block-signal=HUP --block-signal=TERM"},
		{Name: "process/umask 077", Line: "$R --tmpfs /mnt --dir /mnt/d --file {pipe:x} /mnt/f --symlink x /mnt/l --bind $W/d /mnt/e/d $PROBE", Under: "sh -c 'umask 077; exec \"$@\"' sh"},
		{Name: "process/umask 077 on the host", Line: "--bind / / --dir $W/made --file {pipe:x} $W/made/f $PROBE", Under: "sh -c 'umask 077; exec \"$@\"' sh"},
		{Name: "process/umask 0", Line: "$R --unshare-pid --tmpfs /mnt --dir /mnt/d --file {pipe:x} /mnt/f $PROBE", Under: "sh -c 'umask 0; exec \"$@\"' sh"},
		{Name: "process/rlimits", Line: "$R --unshare-pid $PROBE", Under: "prlimit --nofile=64:128 --core=0 --stack=4194304 --fsize=1000000"},
		{Name: "process/nice", Line: "$R --unshare-pid $PROBE", Under: "nice -n 7"},
		{Name: "process/own session", Line: "$R --unshare-pid $PROBE", Under: "sh -c 'setsid -w true; exec \"$@\"' sh"},
		{Name: "process/oom score", Line: "$R --unshare-pid $PROBE", Under: "sh -c 'echo 321 >/proc/self/oom_score_adj; exec \"$@\"' sh"},
		{Name: "process/no new privileges already", Line: "$R --unshare-pid $PROBE", Under: "setpriv --no-new-privs"},
		{Name: "process/seccomp already", Line: "$IMPL/bwrap $R --unshare-user $PROBE", Under: "$IMPL/bwrap --dev-bind / / --seccomp {bpf:nopriority}"},
		{Name: "process/standard input closed", Line: "$R sh -c 'ls -l /proc/self/fd/0 >/dev/null 2>&1; echo $?'", Under: "sh -c 'exec \"$@\" <&-' sh"},
		{Name: "process/standard error closed", Line: "$R sh -c 'echo fine'", Under: "sh -c 'exec \"$@\" 2>&-' sh"},
		{Name: "process/all closed but one", Line: "$R --unshare-pid sh -c 'echo fine'", Under: "sh -c 'exec \"$@\" 2>&- <&-' sh"},
		{Name: "process/empty environment", Line: "$R $PROBE", Under: "env -i"},
		{Name: "process/no PATH", Line: "$R sh -c 'echo $PATH'", Under: "env -u PATH"},
		{Name: "process/empty PATH", Line: "$R sh -c 'echo found'", Under: "env PATH="},
		{Name: "process/PATH with the working directory", Line: "--bind / / --file {pipe:#!/bin/sh\necho here\n} $W/tool --chmod 0755 $W/tool tool", Env: []string{"PATH=:/usr/bin:/bin"}},
		{Name: "process/PATH entry not a directory", Line: "$R sh -c 'echo found'", Env: []string{"PATH=/etc/passwd:/missing:/usr/bin:/bin"}},
		{Name: "process/PATH hits something not executable", Line: "$R inner", Env: []string{"PATH=/missing"}},
		{Name: "process/PATH forbidden then missing", Line: "$R f", Env: []string{"PATH=.:/usr/bin"}},
		{Name: "process/odd environment", Line: "$R $PROBE", Env: []string{"=odd", "lower=x", "SPACE=a b", "EMPTY="}},
		{Name: "process/PWD wrong", Line: "$R $PROBE", Env: []string{"PWD=/nowhere"}},
		{Name: "process/PWD through a link", Line: "$R $PROBE", Dir: "$W/link-d"},
		{Name: "process/working directory in a tmpfs", Line: "--ro-bind / / --tmpfs /tmp --ro-bind $PROBE /tmp/p /tmp/p"},
		{Name: "process/working directory removed", Line: "--ro-bind / / $PROBE", Under: "sh -c 'mkdir gone; cd gone; rmdir ../gone; exec \"$@\"' sh"},
		{Name: "process/working directory covered", Line: "--ro-bind / / --tmpfs $W --ro-bind $PROBE $W/p $W/p"},
		{Name: "process/working directory private", Line: "--ro-bind / / --chdir / $PROBE", Dir: "$W/private", As: Root},
		{Name: "process/working directory /", Line: "--ro-bind / / $PROBE", Dir: "/"},
		{Name: "process/called by a long path", Line: "$R $PROBE", Under: "env -C $W/d"},

		{Name: "process/without privileges", Line: "$R --unshare-pid $PROBE", As: Root, Under: "setpriv --reuid 41234 --regid 41234 --clear-groups"},
		{Name: "process/root without capabilities", Line: "$R --unshare-pid $PROBE", As: Root, Under: "setpriv --inh-caps=-all --bounding-set=-all"},
		{Name: "process/root with few capabilities", Line: "$R --unshare-pid $PROBE", As: Root, Under: "setpriv --bounding-set=-all,+sys_admin,+setuid,+setgid,+chown"},
		{Name: "process/root with few capabilities unshare-user", Line: "$R --unshare-user $PROBE", As: Root, Under: "setpriv --bounding-set=-all,+sys_admin,+setuid,+setgid,+chown"},
		{Name: "process/other group", Line: "$R $PROBE", As: Root, Under: "setpriv --regid 55 --groups 66,77"},
		{Name: "process/user with ambient capabilities", Line: "$R $PROBE", As: Root, Under: "setpriv --reuid 41234 --regid 41234 --clear-groups --inh-caps=+sys_admin,+net_admin --ambient-caps=+sys_admin,+net_admin"},
		{Name: "process/user with groups", Line: "$R --unshare-pid $PROBE", As: Root, Under: "setpriv --reuid 41234 --regid 41234 --groups 41234,100,200"},
		{Name: "process/real and effective differ", Line: "$R true", As: Root, Under: "setpriv --ruid 41234"},
		{Name: "process/in a user namespace as root", Line: "$R --unshare-pid $PROBE", Under: "unshare --user --map-root-user"},
		{Name: "process/in a user namespace as itself", Line: "$R --unshare-pid $PROBE", Under: "unshare --user --map-current-user"},
		{Name: "process/in a user namespace without map", Line: "$R true", Under: "unshare --user"},
		{Name: "process/in its own pid namespace", Line: "$R --unshare-pid true", As: Root, Under: "unshare --pid --fork --mount-proc"},
		{Name: "process/in its own network", Line: "$R $PROBE", As: Root, Under: "unshare --net"},
		{Name: "process/shared mounts", Line: "--bind / / --tmpfs /mnt $PROBE", As: Root, Under: "unshare --mount --propagation shared"},
		{Name: "process/private mounts", Line: "--bind / / --tmpfs /mnt $PROBE", As: Root, Under: "unshare --mount --propagation private"},

		{Name: "process/nested", Line: "$R $IMPL/bwrap $R $PROBE"},
		{Name: "process/nested by PATH", Line: "$R bwrap $R $PROBE"},
		{Name: "process/nested unshare-all", Line: "$R --unshare-all bwrap $R --unshare-all $PROBE"},
		{Name: "process/nested as root inside", Line: "--unshare-all --uid 0 --gid 0 --cap-add ALL --bind / / --bind /proc /proc bwrap --unshare-all --bind / / --bind /proc /proc $PROBE"},
		{Name: "process/nested after disable-userns", Line: "--unshare-user --disable-userns $R bwrap --unshare-user $R true"},
		{Name: "process/nested with fresh proc", Line: "$R --unshare-user --unshare-pid bwrap $R --unshare-user --unshare-pid true"},
		{Name: "process/nested three deep", Line: "--ro-bind / / --dev /dev --unshare-user bwrap --ro-bind / / --dev /dev --unshare-user bwrap --ro-bind / / --dev /dev --unshare-user $PROBE"},
		{Name: "process/nested in a small root", Line: "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --ro-bind $IMPL /impl --ro-bind-try /var/cache/postern /var/cache/postern --ro-bind $PROBE /probe --dev /dev --proc /proc --unshare-pid /impl/bwrap --ro-bind / / --dev /dev --tmpfs /tmp /probe"},
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGKILL, unix.SIGUSR1} {
		for _, options := range []string{"", "--unshare-pid", "--die-with-parent", "--die-with-parent --unshare-pid",
			"--unshare-pid --as-pid-1", "--die-with-parent --unshare-pid --as-pid-1", "--die-with-parent --lock-file $W/lock", "--new-session"} {
			cases = append(cases, Case{
				Name:   fmt.Sprintf("process/launcher gets %s %s", unix.SignalName(signal), options),
				Line:   "$R " + options + " $PROBE",
				Signal: signal,
			})
		}
	}
	for _, signal := range []string{"TERM", "KILL", "SEGV", "HUP", "USR1", "34"} {
		for _, options := range []string{"", "--unshare-pid", "--unshare-pid --as-pid-1", "--lock-file $W/lock"} {
			cases = append(cases, Case{
				Name: fmt.Sprintf("process/command dies of %s %s", signal, options),
				Line: "$R " + options + " sh -c 'kill -" + signal + " $$; echo survived'",
			})
		}
	}
	return cases
}
