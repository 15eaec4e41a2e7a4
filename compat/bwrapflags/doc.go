// Package bwrapflags reads the command line of bubblewrap 0.13.1 and writes it.
//
// [Parse] turns the words into a [Command]: the launch itself as an
// [nsexec.Spec], and what the launcher has to do around it. It is a pure
// function. Everything it needs of the process it works for comes in as
// [Facts] and [FDs], so that a command line means the same in a test, in a
// fuzzer and in the launcher.
//
// [Format] goes the other way, for a Spec that bwrap could have launched.
//
// # Differences from bubblewrap
//
//   - Any number of arguments is accepted; bubblewrap stops at 9000.
//   - A number that does not fit is refused. Bubblewrap lets some of them wrap
//     around, so that --uid 4294967296 means root.
//   - The contents of descriptors for --file, --bind-data and --seccomp are read
//     before anything is launched, and so are descriptors that cannot be read
//     reported: nothing of the sandbox has been set up by then.
//   - There are more options, see [Extensions]. None of them changes what a
//     command line without it means.
package bwrapflags
