// Package seccompbpf says which syscalls a guest may make, and compiles that to a seccomp filter.
//
// A Policy is a plain value: a list of rules, printable and comparable. Hardened is the one to
// use, Baseline is the Python postern's. Compile turns a policy into a Filter, a program in the
// kernel's classic BPF, whose Bytes are loaded with seccomp(2) by whoever starts the guest.
//
// A filter covers five ABIs: x86_64, x32, x86, aarch64 and arm. It looks at the architecture
// first, because a number means another call on each of them and a 64-bit process can make
// 32-bit calls at will. A call from any other architecture kills the process.
//
// CompileFor covers those that the kernel of one machine can have, and kills on the rest. Use it to
// start a guest: what a kernel takes to install a filter goes by its length. HardenedFilter and
// BaselineFilter are such filters, made beforehand for the machine that the program is built for.
//
// # What is promised
//
// The filter of Compile decides as Policy.Evaluate does, for every architecture, number and
// argument, on every machine, and that of CompileFor for the ABIs it covers; Filter.Verdict shows
// what that is without a kernel. Names that no ABI has are errors of both, never ignored. The
// multiplexers of x86, socketcall and ipc, are no way around a rule.
//
// # What is not promised
//
// A filter sees registers, not memory: no paths, and no structures such as the mode of openat2.
// It does not know whose descriptor or process a number stands for. It limits what the
// kernel is asked, not how often. Namespaces, mounts and rlimits have to do the rest.
//
// The tables end at a kernel release. Hardened answers ENOSYS to calls newer than that; Baseline
// and other policies with Unlisted set to Allow let them through.
//
// Programs for 32-bit x86 that use glibc make sockets through socketcall, whose family no filter
// can see. Hardened denies that, so such programs have no sockets at all, unless the policy
// is weakened by Without("socketcall").
//
// # Which call was denied?
//
// Load the same filter with SECCOMP_FILTER_FLAG_LOG. It denies the same calls, and the
// kernel also writes each denial to its audit log, as a line with "type=1326 ... arch=c000003e
// syscall=272". Identify gives those two numbers names.
package seccompbpf
