// Postern-launch starts one program in a sandbox of its own.
//
// It takes the command line of bubblewrap and does what bubblewrap does with
// it, so that it can stand in for the bwrap binary wherever that is called:
//
//	postern-launch --ro-bind / / --dev /dev --proc /proc --unshare-all sh
//
// Called by the name bwrap it also says that it is bwrap, for callers that ask
// for a version. The options it has beyond bubblewrap's are listed by --help.
package main
