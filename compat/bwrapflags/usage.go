//go:build linux

package bwrapflags

// Usage returns the usage text of a launcher called program. Clients look in
// it for the options they want to use.
func Usage(program string) string {
	return "usage: " + program + " [OPTIONS...] [--] COMMAND [ARGS...]\n" + optionTexts + Extensions
}

const optionTexts = `
    --help                       Show these options
    --version                    Show the version
    --args FD                    Read more options from FD, each ended by a NUL byte
    --argv0 VALUE                Give COMMAND the name VALUE as its argv[0]
    --level-prefix               Start messages with their syslog level, like <3>

    --unshare-all                New namespaces of every type, as far as the kernel has them
    --share-net                  Keep the network after --unshare-all
    --unshare-user               New user namespace (always, unless the caller is root)
    --unshare-user-try           New user namespace if user namespaces are enabled
    --unshare-ipc                New IPC namespace
    --unshare-pid                New PID namespace
    --unshare-net                New network namespace, with nothing but a loopback interface
    --unshare-uts                New UTS namespace
    --unshare-cgroup             New cgroup namespace
    --unshare-cgroup-try         New cgroup namespace if the kernel has them
    --userns FD                  Enter this user namespace (not with --unshare-user)
    --userns2 FD                 Enter this user namespace once everything is set up
    --disable-userns             Let nothing in the sandbox create user namespaces
    --assert-userns-disabled     Fail unless user namespaces cannot be created in the sandbox
    --pidns FD                   Enter this PID namespace (below it, with --unshare-pid)
    --uid UID                    User ID in the sandbox (with --unshare-user or --userns)
    --gid GID                    Group ID in the sandbox (with --unshare-user or --userns)
    --hostname NAME              Host name in the sandbox (with --unshare-uts)

    --chdir DIR                  Start in directory DIR
    --clearenv                   Empty the environment
    --setenv VAR VALUE           Set an environment variable
    --unsetenv VAR               Remove an environment variable

    --lock-file DEST             Hold a read lock on DEST while the sandbox runs
    --sync-fd FD                 Hold FD open while the sandbox runs

    --bind SRC DEST              Show the host's SRC at DEST
    --bind-try SRC DEST          The same, unless SRC does not exist
    --dev-bind SRC DEST          Show the host's SRC at DEST and let device files work
    --dev-bind-try SRC DEST      The same, unless SRC does not exist
    --ro-bind SRC DEST           Show the host's SRC at DEST, read-only
    --ro-bind-try SRC DEST       The same, unless SRC does not exist
    --bind-fd FD DEST            Show the file or directory open as FD at DEST
    --ro-bind-fd FD DEST         Show the file or directory open as FD at DEST, read-only
    --remount-ro DEST            Make the mount at DEST read-only, but not those below it
    --overlay-src SRC            A layer for the overlay that follows, above those before it
    --overlay RWSRC WORKDIR DEST Show layers at DEST and write to RWSRC; WORKDIR is an empty directory
                                 of the same file system
    --tmp-overlay DEST           Show layers at DEST and write to memory
    --ro-overlay DEST            Show layers at DEST, read-only
    --exec-label LABEL           SELinux label of COMMAND
    --file-label LABEL           SELinux label of files made for the sandbox
    --proc DEST                  Mount a proc file system at DEST
    --dev DEST                   Mount a minimal /dev at DEST
    --tmpfs DEST                 Mount an empty tmpfs at DEST
    --mqueue DEST                Mount the POSIX message queues at DEST
    --dir DEST                   Make a directory at DEST
    --file FD DEST               Write what can be read from FD to the file DEST
    --bind-data FD DEST          Mount a file with what can be read from FD at DEST
    --ro-bind-data FD DEST       The same, read-only
    --symlink SRC DEST           Make a symbolic link at DEST that points to SRC
    --perms OCTAL                Mode of what the next option makes (--dir, --file, --tmpfs, --bind-data ...)
    --size BYTES                 Size of the --tmpfs that comes next
    --chmod OCTAL PATH           Change the mode of PATH, which must exist

    --seccomp FD                 Install the system call filter read from FD (once)
    --add-seccomp-fd FD          Install the system call filter read from FD (any number of times)
    --block-fd FD                Start COMMAND only when a byte can be read from FD
    --userns-block-fd FD         Wait for a byte from FD until the ID maps are written
    --info-fd FD                 Write a JSON document about the sandbox to FD
    --json-status-fd FD          Write one JSON document per line about the sandbox's life to FD
    --new-session                Start a session without a controlling terminal
    --die-with-parent            Kill COMMAND when the launcher or the launcher's parent ends
    --as-pid-1                   Run COMMAND as process 1 of its PID namespace, without an init
    --cap-add CAP                Keep capability CAP, or ALL
    --cap-drop CAP               Drop capability CAP, or ALL
    --not-a-security-boundary    Carry on where a sandbox that has to keep something in would give up
`
