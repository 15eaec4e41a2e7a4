/* The baseline denylist, built by libseccomp: an independent answer to compare ours with.
 *
 *   oracle filter   writes the BPF program
 *   oracle names    writes "abi number name" for every syscall libseccomp knows
 */
#include <errno.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	uint32_t token;
	uint32_t base; /* of its numbers */
} abis[] = {
	{"x86_64", SCMP_ARCH_X86_64, 0},  {"x86", SCMP_ARCH_X86, 0}, {"x32", SCMP_ARCH_X32, 0x40000000},
	{"aarch64", SCMP_ARCH_AARCH64, 0}, {"arm", SCMP_ARCH_ARM, 0},
};
enum { NABIS = sizeof abis / sizeof *abis };

static const char *const eperm[] = {
	"unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "add_key", "keyctl",
	"request_key", "ptrace", "perf_event_open", "move_pages", "mbind", "get_mempolicy",
	"set_mempolicy", "migrate_pages", "syslog", "uselib", "acct", "quotactl", "bpf",
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
	"swapon", "swapoff", "io_uring_setup", "io_uring_enter", "io_uring_register", NULL,
};
static const char *const enosys[] = {
	"clone3", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
	"mount_setattr", NULL,
};

static void must(int rc, const char *what)
{
	if (rc < 0 && rc != -EEXIST) {
		fprintf(stderr, "oracle: %s: %s\n", what, strerror(-rc));
		exit(1);
	}
}

static void deny(scmp_filter_ctx ctx, int err, const char *const *names)
{
	for (; *names; names++)
		must(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(err), seccomp_syscall_resolve_name(*names), 0), *names);
}

static void filter(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	for (int i = 0; i < NABIS; i++)
		must(seccomp_arch_add(ctx, abis[i].token), abis[i].name);
	deny(ctx, EPERM, eperm);
	deny(ctx, ENOSYS, enosys);
	must(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
			      SCMP_A0(SCMP_CMP_MASKED_EQ, 0x10000000, 0x10000000)), "clone");
	must(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
			      SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, 0x5412)), "TIOCSTI");
	must(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
			      SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, 0x541c)), "TIOCLINUX");
	must(seccomp_export_bpf(ctx, STDOUT_FILENO), "export");
}

static void names_from(int abi, uint32_t first, uint32_t last)
{
	for (uint32_t nr = first; nr <= last; nr++) {
		char *name = seccomp_syscall_resolve_num_arch(abis[abi].token, (int)nr);
		if (name)
			printf("%s %u %s\n", abis[abi].name, nr, name);
		free(name);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "filter")) {
		filter();
	} else if (argc == 2 && !strcmp(argv[1], "names")) {
		for (int i = 0; i < NABIS; i++) {
			names_from(i, abis[i].base, abis[i].base + 1023);
			names_from(i, abis[i].base + 0xf0000, abis[i].base + 0xf00ff);
		}
	} else {
		return 2;
	}
	return 0;
}
