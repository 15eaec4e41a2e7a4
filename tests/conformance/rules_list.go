//go:build linux

package main

// Rules is the one list of all differences. A difference that no rule matches fails the suite, and so does a
// rule that matches none.
var Rules = []Rule{
	// The processes between the caller and the command.
	{"*", "Guest.Ancestors[*].Namespaces[mnt]", `"host"`, `"new"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Namespaces[uts]", `"host"`, `"new"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Namespaces[ipc]", `"host"`, `"new"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Namespaces[cgroup]", `"host"`, `"new"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Namespaces[net]", `"host"`, `"new"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Namespaces[user]", `"host"`, `"new, * below host"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Setgroups", `"allow"`, `"deny"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].UIDMap", `"0 0 4294967295"`, "", Deliberate, monitor},
	{"*", "Guest.Ancestors[*].GIDMap", `"0 0 4294967295"`, "", Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Capabilities[CapBnd]", `"000001fffeffffff"`, `"000001ffffffffff"`, Deliberate, monitor},
	{"*", "Guest.Ancestors[*].Capabilities[CapEff]", `"0000000000000000"`, `"*"`, Deliberate, monitorCaps},
	{"*", "Guest.Ancestors[*].Capabilities[CapPrm]", `"0000000000000000"`, `"*"`, Deliberate, monitorCaps},
	{"*", "Guest.Ancestors[*].SignalsBlocked", "", "", Deliberate, "which signals the launcher and the init block follows from how they wait for the command: bwrap's launcher reads signals from a descriptor, and of ours it is the init that does"},
	{"*", "Guest.Ancestors[launcher].NoNewPrivs", `"1"`, `"0"`, Deliberate, "the launcher stays outside to write the documents, executes nothing any more, and so has no use for no_new_privs"},

	// /proc.
	{"* as root", "Guest.Mounts[*/sys]", "absent", "{Parent:* Device:/proc Root:/sys Options:nodev,noexec,nosuid,relatime,ro *", Better, procSys},
	{"* as root", "Guest.Mounts[*/sys over *]", "absent", "{Parent:* Device:/proc Root:/sys Options:*nosuid,relatime,ro *", Better, procSys},
	{"* as root", "Guest.Writable[/proc/sys/*]", `"ok"`, `"read-only file system"`, Better, procSys},
	{"* as root", "Guest.Mounts[*/bus*].Options", `"nodev,nosuid,relatime,ro"`, `"nodev,noexec,nosuid,relatime,ro"`, Better, "the cover keeps the noexec of /proc, which bwrap's loses"},
	{"* as root", "Guest.Mounts[*/irq*].Options", `"nodev,nosuid,relatime,ro"`, `"nodev,noexec,nosuid,relatime,ro"`, Better, "the cover keeps the noexec of /proc, which bwrap's loses"},
	{"*", "Guest.Writable[/proc/1/oom_score_adj]", `"ok"`, `"permission denied"`, Deliberate, "our init is not dumpable, so its files in /proc belong to nobody in the sandbox"},

	// One user namespace instead of two.
	{"*", "Guest.Process.Namespaces[user]", `"new, * below host"`, `"new, * below host"`, Deliberate, oneUserNS},
	{"*", "Guest.Ancestors[init*].Namespaces[user]", `"new, * below host"`, `"new, * below host"`, Deliberate, oneUserNS},
	{"*", "Guest.Files[*/pts].Owner", "", `"65534:65534"`, Deliberate, oneUserNS},
	{"*", "Guest.Files[*/pts].Access", `"rwx"`, `"rx"`, Deliberate, oneUserNS},

	// File systems.
	{"*", "Guest.Mounts[*].Root", `"/bindfile//deleted"`, `"/data*"`, Deliberate, "the files behind --bind-data have another name in a place that is not in the sandbox"},
	{"*", "Guest.Mounts[*].SuperOptions", `"lowerdir=*`, `"lowerdir=*`, Deliberate, "the layers of an overlay are named by their paths, not by descriptors that are closed since"},
}

const (
	monitor     = "our launcher becomes the launch and enters the new namespaces with it; bwrap leaves its first process outside"
	monitorCaps = "our launcher keeps the capabilities it had while it waits: what it is allowed to do, the command cannot make it do, for having them is also what keeps a command without them from tracing it"
	procSys     = "bwrap covers only what access(2) calls writable, and for /proc/sys that is never the case as root, while the files below it are: its command can set core_pattern of the machine"
	oneUserNS   = "bwrap needs user 0 to mount devpts and makes a second user namespace to have the user back; we mount it with the user mapped to itself and the owner of the directory is not mapped"
)
