//go:build linux

package main

// Why the processes between the caller and the command differ.
const (
	monitor     = "what stays of our launcher is outside of the user namespace it was told to join, where the command has no power over it"
	monitorCaps = "our launcher keeps what capabilities it has while it waits, and having more than the command is also what keeps the command from tracing it"
	monitorWait = "which signals the launcher and the init block follows from how they wait for the command"
	goRuntime   = "the Go runtime takes these signals over before the first line of the launcher runs, and what it found is lost"
)

// Rules is the one list of all differences. A difference that no rule matches fails the suite, and so does a
// rule that matches none.
var Rules = []Rule{
	{Case: "*", Field: "Guest.Ancestors[*].Capabilities[CapEff]", Theirs: `"0000000000000000"`, Ours: `"000001ff*"`, Class: Deliberate, Reason: monitorCaps},
	{Case: "*", Field: "Guest.Ancestors[*].Capabilities[CapPrm]", Theirs: `"0000000000000000"`, Ours: `"000001ff*"`, Class: Deliberate, Reason: monitorCaps},
	{Case: "*", Field: "Guest.Ancestors[*].SignalsBlocked", Class: Deliberate, Reason: monitorWait},
	{Case: "*", Field: "Guest.Ancestors[launcher].NoNewPrivs", Theirs: `"1"`, Ours: `"0"`, Class: Deliberate, Reason: "a launcher that stays outside to write documents executes nothing any more and has no use for no_new_privs"},
	{Case: "*userns*", Field: "Guest.Ancestors[launcher].Namespaces[user]", Ours: `"host"`, Class: Better, Reason: monitor},
	{Case: "*userns*", Field: "Guest.Ancestors[launcher].Setgroups", Ours: `"allow"`, Class: Better, Reason: monitor},
	{Case: "*userns*", Field: "Guest.Ancestors[launcher].UIDMap", Ours: `"0 0 4294967295"`, Class: Better, Reason: monitor},
	{Case: "*userns*", Field: "Guest.Ancestors[launcher].GIDMap", Ours: `"0 0 4294967295"`, Class: Better, Reason: monitor},
	{Case: "*userns*", Field: "Guest.Ancestors[launcher].Capabilities[CapBnd]", Theirs: `"000001ffffffffff"`, Ours: `"000001ff*"`, Class: Better, Reason: monitor},
	{Case: "process/nested*", Field: "Guest.*PIDs", Theirs: `"* *"`, Ours: `"* *"`, Class: Deliberate, Reason: "the threads of the Go runtime of a launcher in the sandbox take numbers in its PID namespace"},
	{Case: "option/sync-fd closed as *", Field: "Guest.Ancestors[init1]", Ours: "absent", Class: Deliberate, Reason: "without an open descriptor there is nothing that an init would have to keep open"},
	{Case: "option/sync-fd closed as *", Field: "Guest.Parent", Theirs: `"init1"`, Ours: `"launcher"`, Class: Deliberate, Reason: "without an open descriptor there is nothing that an init would have to keep open"},

	// Signals.
	{Case: "process/signals ignored*", Field: "Guest.Ignored", Class: Deliberate, Reason: goRuntime},
	{Case: "process/signals ignored*", Field: "Guest.Ancestors[*].SignalsIgnored", Class: Deliberate, Reason: goRuntime},

	// What covers /proc.
	{Case: "* as root", Field: "Guest.Mounts[*/sys*]", Theirs: "absent", Ours: "{Parent:* Root:/sys Options:*nosuid,relatime,ro *", Class: Better, Reason: procSys},
	{Case: "* as root", Field: "Guest.Writable[/proc/sys/*]", Theirs: `"ok"`, Ours: `"read-only file system"`, Class: Better, Reason: procSys},
	{Case: "* as root", Field: "Guest.Mounts[/proc/sys].Device", Theirs: `"/proc"`, Ours: `"new"`, Class: Better, Reason: procSys},
	{Case: "* as root", Field: "Guest.Mounts[/proc/sys].Options", Theirs: `"nodev,nosuid,relatime,ro"`, Ours: `"nodev,noexec,nosuid,relatime,ro"`, Class: Better, Reason: procSys},
	{Case: "* as root", Field: "Guest.Mounts[*/bus*]", Theirs: "absent", Ours: "{Parent:* Root:/bus Options:nodev,noexec,nosuid,relatime,ro *", Class: Better, Reason: procAccess},
	{Case: "* as root", Field: "Guest.Mounts[*/irq*]", Theirs: "absent", Ours: "{Parent:* Root:/irq Options:nodev,noexec,nosuid,relatime,ro *", Class: Better, Reason: procAccess},
	{Case: "* as root", Field: "Guest.Files[*/bus].Access", Theirs: `"rwx"`, Ours: `"rx"`, Class: Better, Reason: procAccess},
	{Case: "* as root", Field: "Guest.Files[*/irq].Access", Theirs: `"rwx"`, Ours: `"rx"`, Class: Better, Reason: procAccess},
	{Case: "* as root", Field: "Guest.Writable[/proc/irq/*]", Theirs: `"ok"`, Ours: `"read-only file system"`, Class: Better, Reason: procAccess},
	{Case: "* as root", Field: "Guest.Mounts[*/bus*].Options", Theirs: `"nodev,nosuid,relatime,ro"`, Ours: `"nodev,noexec,nosuid,relatime,ro"`, Class: Better, Reason: procNoexec},
	{Case: "* as root", Field: "Guest.Mounts[*/irq*].Options", Theirs: `"nodev,nosuid,relatime,ro"`, Ours: `"nodev,noexec,nosuid,relatime,ro"`, Class: Better, Reason: procNoexec},
	{Case: "*", Field: "Guest.Writable[/proc/1/oom_score_adj]", Theirs: `"ok"`, Ours: `"permission denied"`, Class: Deliberate, Reason: "our init is not dumpable, so its files in /proc belong to nobody in the sandbox"},

	// One user namespace where bwrap makes two.
	{Case: "*", Field: "Guest.Process.Namespaces[user]", Theirs: `"new, * below host"`, Ours: `"new, * below host"`, Class: Deliberate, Reason: oneUserNS},
	{Case: "*", Field: "Guest.Ancestors[*].Namespaces[user]", Theirs: `"new, * below host"`, Ours: `"new, * below host"`, Class: Deliberate, Reason: oneUserNS},
	{Case: "*", Field: "Guest.Files[*/pts].Owner", Ours: `"65534:*"`, Class: Deliberate, Reason: oneUserNS},
	{Case: "*", Field: "Guest.Files[*/pts].Owner", Ours: `"*:65534"`, Class: Deliberate, Reason: oneUserNS},
	{Case: "*", Field: "Guest.Files[*/pts].Access", Theirs: `"rwx"`, Ours: `"rx"`, Class: Deliberate, Reason: oneUserNS},

	// Capabilities.
	{Case: "* as root", Field: "Guest.Process.Capabilities[CapBnd]", Theirs: `"000001ff*ffffff"`, Class: Better, Reason: bounding},
	{Case: "* as root", Field: "Guest.Ancestors[init*].Capabilities[CapBnd]", Theirs: `"000001ff*ffffff"`, Class: Better, Reason: bounding},
	{Case: "option/userns2 as *", Field: "Guest.Process.Capabilities[CapBnd]", Theirs: `"000001ffffffffff"`, Class: Better, Reason: userns2Caps},
	{Case: "option/userns2 as root", Field: "Guest.Process.Capabilities[CapEff]", Theirs: `"000001ffffffffff"`, Ours: `"000001ff*ffffff"`, Class: Better, Reason: userns2Caps},
	{Case: "option/userns2 as root", Field: "Guest.Process.Capabilities[CapPrm]", Theirs: `"000001ffffffffff"`, Ours: `"000001ff*ffffff"`, Class: Better, Reason: userns2Caps},
	{Case: "option/userns2 as root", Field: "Guest.Writable[/proc/sys/user/max_user_namespaces]", Theirs: `"read-only file system"`, Ours: `"permission denied"`, Class: Better, Reason: userns2Caps},
	{Case: "* as root", Field: "Guest.Process.Capabilities[CapInh]", Theirs: `"0000000000000000"`, Ours: `"000001ff*"`, Class: Better, Reason: capAddAll},
	{Case: "* as root", Field: "Guest.Process.Capabilities[CapAmb]", Theirs: `"0000000000000000"`, Ours: `"000001ff*"`, Class: Better, Reason: capAddAll},
	{Case: "* as root", Field: "Guest.Process.Capabilities[CapEff]", Theirs: `"000001ff*ffffff"`, Ours: `"000001ff*"`, Class: Better, Reason: capAddAll},
	{Case: "* as root", Field: "Guest.Process.Capabilities[CapPrm]", Theirs: `"000001ff*ffffff"`, Ours: `"000001ff*"`, Class: Better, Reason: capAddAll},
	{Case: "error/--cap-* CAP_SYS_ADMIN,CAP_CHOWN as user", Field: "Stderr", Theirs: "[]", Ours: "[bwrap: unknown cap: *]", Class: Better, Decides: true, Reason: "bwrap's parser takes a list of names for one name and does something else than was meant"},
	{Case: "process/root with few capabilities as root", Field: "Stderr", Theirs: "[]", Ours: "[bwrap: Failed to mount tmpfs: Operation not permitted]", Class: Deliberate, Decides: true, Reason: "a launch by root without a user namespace needs CAP_SYS_CHROOT as well as CAP_SYS_ADMIN: sources are resolved with the old root as root"},

	// Descriptors.
	{Case: "*", Field: "Guest.FDs[*]", Theirs: `"file userns3 r"`, Ours: "absent", Class: Better, Reason: nsLeak},
	{Case: "option/pidns alone as root", Field: "Guest.FDs[3]", Theirs: `"file pidns3 r"`, Ours: "absent", Class: Better, Reason: nsLeak},
	{Case: "option/userns2 as *", Field: "Guest.FDs[*]", Theirs: `"file * r"`, Ours: "absent", Class: Better, Reason: nsLeak},
	{Case: "option/userns stdin as *", Field: "Guest.FDs[0]", Theirs: `"file 0 r"`, Ours: `"char * rw"`, Class: Better, Reason: nsLeak},
	{Case: "option/userns-block-fd* as root", Field: "Guest.FDs[3]", Theirs: `"fifo mapsblock3 r"`, Ours: "absent", Class: Better, Reason: "the descriptor is the launcher's to read, and bwrap leaks it to the command"},
	{Case: "process/standard error for info as *", Field: "Guest.FDs[2]", Theirs: `"char null rw"`, Ours: `"file stderr rw"`, Class: Better, Reason: stdClosed},
	{Case: "process/standard error for info as *", Field: "Guest.Ancestors[launcher].FDs[2]", Theirs: "absent", Ours: `"stderr"`, Class: Better, Reason: stdClosed},
	{Case: "process/status on standard output as *", Field: "Stderr", Theirs: "[sh: echo: echo: I/O error]", Ours: "[]", Class: Better, Decides: true, Reason: stdClosed},
	{Case: "process/standard input closed as *", Field: "Stdout", Theirs: `"2\n"`, Ours: `"0\n"`, Class: Deliberate, Reason: "a standard stream that was closed is /dev/null for the command, so that no file it opens becomes its input or output"},
	{Case: "process/one descriptor for two options as *", Field: "Stderr", Theirs: "[bwrap: Write to info_fd: Bad file descriptor]", Ours: "[]", Class: Better, Decides: true, Reason: "bwrap closes the descriptor after the first of the two documents"},
	{Case: "option/bind-fd closed as root", Field: "Stderr", Theirs: "[]", Ours: "[bwrap: Can't find source path /proc/self/fd/3: *]", Class: Better, Decides: true, Reason: "the number is not open, and bwrap binds what it has opened itself under that number"},
	{Case: "option/bind-fd * as *", Field: "Stderr", Theirs: "[bwrap: *]", Ours: "[bwrap: Can't find source path /proc/self/fd/3: *]", Class: Better, Reason: "the text says which option cannot be carried out"},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't reopen *: Not a directory]", Class: Better, Decides: true, Reason: "a trailing slash after the destination of a file is no reason to fail with --ro-bind either"},

	// Namespaces.
	{Case: "option/pidns *as-pid-1 as *", Field: "Stderr", Theirs: pidnsFails, Ours: "[]", Class: Better, Decides: true, Reason: pidnsUnshare},
	{Case: "option/pidns unshare-pid as *", Field: "Stderr", Theirs: pidnsFails, Ours: "[]", Class: Better, Decides: true, Reason: pidnsUnshare},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Setting pidns failed: * bwrap: Unexpected short read from pid socket]", Ours: "[*bwrap: Setting pidns failed: *]", Class: Better, Reason: "one error has one message"},
	{Case: "option/userns uid not mapped as *", Field: "Stderr", Theirs: "[bwrap: unable to switch to uid 5: *]", Ours: "[bwrap: unable to switch to uid and gid: *]", Class: Deliberate, Reason: wording},
	{Case: "option/userns-block-fd nobody writes as *", Field: "Stderr", Theirs: "[bwrap: Creating newroot failed: Value too large for defined data type]", Ours: "[bwrap: Failed to mount tmpfs: Value too large for defined data type]", Class: Deliberate, Reason: wording},
	{Case: "process/in a user namespace without map as *", Field: "Stderr", Theirs: "[bwrap: No permissions to create a new namespace, likely because the kernel does not allow non-privileged user namespaces*]", Ours: "[bwrap: No permissions to create a new namespace, likely because the kernel does not allow non-privileged user namespaces: *]", Class: Deliberate, Reason: "the words that callers look for are the same; Debian's bwrap goes on with the address of a manual, we with the settings to look at"},
	{Case: "path/*bind of own namespace as *", Field: "Stderr", Theirs: "[bwrap: Can't find source path /proc/self/ns/user: *]", Ours: "[]", Class: Better, Decides: true, Reason: "the source exists; bwrap cannot find it because a link in /proc is no path that realpath could follow"},
	{Case: "reported/bubblewrap 273 root mounted twice as root", Field: "Stderr", Theirs: "[bwrap: Can't bind mount *]", Ours: "[]", Class: Better, Decides: true, Reason: "issue 273 of bubblewrap: a root over a root cannot be found in the mount table by its path"},

	// The command line, its limits and its texts.
	{Case: "option/args too many as *", Field: "Stderr", Theirs: "[bwrap: Exceeded maximum number of arguments 9000]", Ours: "[]", Class: Better, Decides: true, Reason: wordLimit},
	{Case: "reported/bubblewrap 703 many words as *", Field: "Stderr", Theirs: "[bwrap: Exceeded maximum number of arguments 9000]", Ours: "[]", Class: Better, Decides: true, Reason: wordLimit},
	{Case: "option/uid wraps as *", Field: "Stderr", Theirs: "[]", Ours: "[bwrap: Invalid uid: 99999999999]", Class: Better, Decides: true, Reason: "bwrap runs the command as some other user than was asked for"},
	{Case: "*", Field: "Stderr", Theirs: "[usage: bwrap *", Ours: "[usage: bwrap *", Class: Deliberate, Reason: "the usage is written in our own words, and has our own options"},
	{Case: "option/help* as *", Field: "Stdout", Theirs: `"usage: bwrap *`, Ours: `"usage: bwrap *`, Class: Deliberate, Reason: "the usage is written in our own words, and has our own options"},
	{Case: "error/--overlay-src empty 0 as user", Field: "Stderr", Theirs: "[bwrap: --overlay-src must be followed by *]", Ours: "[bwrap: --overlay-src does not take an empty path argument]", Class: Better, Reason: "of two errors the text names the one that has to be corrected first"},
	{Case: "process/odd environment as *", Field: "Guest.Env[]", Theirs: `"odd"`, Ours: "absent", Class: Deliberate, Reason: "an entry of the environment without a name is dropped: no program can ask for it"},

	// What is left behind.
	{Case: "*/--info-fd 99 as *", Field: "Outlived", Theirs: "[other]", Ours: "[]", Class: Better, Reason: outlived},
	{Case: "*/--json-status-fd 99 as *", Field: "Outlived", Theirs: "[other]", Ours: "[]", Class: Better, Reason: outlived},
	{Case: "*/--userns2 99 as *", Field: "Outlived", Theirs: "[other]", Ours: "[]", Class: Better, Reason: outlived},
	{Case: "option/info-fd * as *", Field: "Outlived", Theirs: "[other]", Ours: "[]", Class: Better, Reason: outlived},
	{Case: "option/json-status-fd closed as *", Field: "Outlived", Theirs: "[other]", Ours: "[]", Class: Better, Reason: outlived},
	{Case: "process/one descriptor for two options as *", Field: "Outlived", Theirs: "[other]", Ours: "[]", Class: Better, Reason: outlived},

	// Mounts.
	{Case: "*", Field: "Guest.Mounts[*].Root", Theirs: `"/bindfile//deleted"`, Ours: `"/data*"`, Class: Deliberate, Reason: "the files behind --bind-data have another name in a place that is not in the sandbox"},
	{Case: "*", Field: "Guest.Mounts[*].SuperOptions", Theirs: `"lowerdir=*`, Ours: `"lowerdir=*`, Class: Deliberate, Reason: "the layers of an overlay are named by their paths, not by descriptors that are closed since"},

	// Sources: bwrap looks for all of them before it starts. Where nothing of the host's can have changed by then we find out when their turn comes.
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't find source path *]", Ours: "[*bwrap: *]", Class: Deliberate, Decides: true, Reason: inOrder},
	{Case: "generated/*", Field: "Host[wk/work]", Theirs: "absent", Ours: `"created: *"`, Class: Deliberate, Reason: "an overlay is mounted where the sandbox will not see it and then moved, so the kernel has made its work directory when the destination turns out to be unfit"},
	{Case: "error/--*file 99 as user", Field: "Stderr", Theirs: "[bwrap: Can't create file /mnt: Is a directory]", Ours: "[bwrap: Can't write data to file /mnt: Bad file descriptor]", Class: Deliberate, Reason: dataFirst},
	{Case: "error/--*bind-data 99 as user", Field: "Stderr", Theirs: "[bwrap: Destination is not a file /mnt]", Ours: "[bwrap: Can't write data to file /mnt: Bad file descriptor]", Class: Deliberate, Reason: dataFirst},
	{Case: "*/* setup fail*", Field: "Documents[out3]", Theirs: `"{*`, Ours: `""`, Class: Better, Reason: notToBe},
	{Case: "generated/*", Field: "Documents[*]", Theirs: `"{*`, Ours: `""`, Class: Better, Reason: notToBe},

	// --dir and --remount-ro.
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Destination is not a directory *]", Ours: "[]", Class: Deliberate, Decides: true, Reason: dirLink},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Destination is not a directory *]", Ours: "[*bwrap: Can't *]", Class: Deliberate, Decides: true, Reason: dirLink},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Destination is not a directory *]", Ours: "[*bwrap: Destination is not a file *]", Class: Deliberate, Decides: true, Reason: dirLink},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't mkdir parents for *: Not a directory]", Ours: "[*bwrap: Destination is not a directory *]", Class: Deliberate, Reason: wording},
	{Case: "order/symlink leaf then remount-ro as *", Field: "Stderr", Theirs: "[bwrap: Can't mount on symlink destination *]", Ours: "[]", Class: Deliberate, Decides: true, Reason: "--remount-ro follows a link inside the sandbox: nothing is mounted over it"},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't mount on symlink destination *]", Ours: "[*bwrap: Can't remount readonly on *]", Class: Deliberate, Reason: "--remount-ro follows a link inside the sandbox: nothing is mounted over it"},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't remount readonly on *: Unable to open destination O_PATH fd *]", Class: Better, Decides: true, Reason: "what --ro-bind-data has made is a mount like others; bwrap does not find it because the file behind it has no name any more"},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't remount readonly on *: mount_setattr() failed *]", Ours: "[*bwrap: Can't remount readonly on *: Invalid argument]", Class: Deliberate, Reason: wording},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't create file *: No such file or directory]", Ours: "[*bwrap: Can't remount readonly on *: No such file or directory]", Class: Better, Decides: true, Reason: remountMakes},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't mkdir parents for *]", Ours: "[*bwrap: Can't remount readonly on *]", Class: Better, Decides: true, Reason: remountMakes},
	{Case: "*", Field: "Stderr", Theirs: "[bwrap: Can't bind mount * on *: Unable to mount source on destination: No such file or directory*", Class: Better, Decides: true, Reason: "what --bind-data has made is a mount like others, and can be mounted on"},

	// The other texts.
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't chmod *]", Ours: "[*bwrap: Can't chmod *: Read-only file system]", Class: Deliberate, Reason: wording},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't chmod *]", Ours: "[*bwrap: Can't open *: Too many levels of symbolic links]", Class: Deliberate, Reason: wording},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't make symlink at *: existing destination is *]", Ours: "[*bwrap: Can't make symlink at *: File exists]", Class: Deliberate, Reason: wording},
	{Case: "*", Field: "Stderr", Theirs: "[*bwrap: Can't make overlay mount on (null) with options *]", Ours: "[*bwrap: Can't make overlay mount on *]", Class: Better, Reason: "the text names the destination"},
	{Case: "reported/flatcar 2417 through a magic link as *", Field: "Stderr", Theirs: "[bwrap: Can't mkdir parents for /x/y: *]", Ours: "[bwrap: Can't create file /x/y: *]", Class: Deliberate, Reason: wording},
	{Case: "reported/gvisor 14451 no openat2 as *", Field: "Stderr", Theirs: "[bwrap: Can't open source /: Function not implemented]", Ours: "[bwrap: Can't bind mount on /: Function not implemented]", Class: Deliberate, Reason: wording},
	{Case: "process/nested in a small root as *", Field: "Stderr", Theirs: "[bwrap: Failed to mount tmpfs: No such file or directory]", Ours: "[bwrap: Can't create file /tmp: Read-only file system]", Class: Deliberate, Reason: "the temporary root needs a directory to be mounted on; bwrap says that there is no /tmp, we try to make it and say why that fails"},
}

const (
	wording      = "the same error in other words: which step finds it is up to how the launch is made"
	procSys      = "bwrap covers only what access(2) calls writable, and for /proc/sys that is never the case as root, while the files below it are: its command can set core_pattern of the machine"
	procAccess   = "bwrap covers only what access(2) calls writable, which depends on the user and the capabilities it asks with; we cover it always"
	procNoexec   = "the cover keeps the noexec of /proc, which bwrap's loses"
	oneUserNS    = "bwrap needs user 0 to mount devpts and makes a second user namespace to have the user back; we mount it as the user, and the owner of the directory is not mapped"
	bounding     = "the bounding set is reduced to the capabilities that are kept, so that no program can have the others back"
	userns2Caps  = "entering a user namespace gives a process all capabilities in it, of which ours keeps what was asked for and lets no program have the others back"
	capAddAll    = "--cap-add ALL gives the command the capabilities as well if it is not user 0; with bwrap only naming them does, and one dropped after it is not dropped"
	nsLeak       = "a descriptor of a namespace is for the launcher, and bwrap leaks it to the command, which may enter that namespace again"
	stdClosed    = "a standard stream that was used for a document stays open for the command, which bwrap closes"
	pidnsFails   = "[bwrap: * bwrap: Unexpected short read from pid socket]"
	pidnsUnshare = "--unshare-pid makes a PID namespace in the one of --pidns, as the manual says; bwrap fails"
	wordLimit    = "issue 703 of bubblewrap: there is no limit of 9000 words"
	outlived     = "nothing of a failed launch is left behind; bwrap's child waits for its launcher that has ended"
	notToBe      = "nobody is told of a process that cannot become a sandbox and has ended before one could look at it"
	inOrder      = "a source is looked for when its turn comes: what comes before it on the command line is done, or fails, before"
	dataFirst    = "the data of files is read before anything is set up, so that a bad descriptor changes nothing"
	dirLink      = "--dir takes a link that leads to a directory inside the sandbox for the directory, as bwrap did before 0.12"
	remountMakes = "--remount-ro looks for a mount and makes nothing; bwrap first makes the destination, on the machine too, and then says that it cannot"
)
