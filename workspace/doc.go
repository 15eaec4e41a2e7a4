// Package workspace lets a host handle a directory that a hostile guest can
// write to, without becoming a confused deputy.
//
// A guest can leave anything in the directory it shares with the host: symbolic
// links to the host's files, FIFOs that block a reader for ever, hard links,
// set-user-ID programs, trees five thousand levels deep; and it can swap one for
// another while the host looks. A [Workspace] is reference-closed: nothing the
// guest can plant leads the host out of the directory.
//
//   - Names are slash-separated and relative to the workspace. Absolute names and
//     names with a ".." component are refused before the file system is asked.
//   - Every access starts from one directory descriptor and is resolved by the
//     kernel with openat2(2): below it, through no symbolic link, no magic link
//     and no mount point. Where openat2 is missing (Linux before 5.6, a seccomp
//     filter, other Unixes) each component is opened on its own with O_NOFOLLOW.
//   - Only regular files and directories are ever opened, and never in a way that
//     could block.
//   - Names are given out relative to the workspace; [Workspace.HostRoot] is the
//     only method that returns a host path.
//
// [Workspace.PackTar] and [Workspace.RestoreTar] carry the contents elsewhere and
// back, [Workspace.Sanitize] removes privileges a guest has planted, and
// [Workspace.FS] is a read-only [io/fs.FS].
//
// # What is not promised
//
//   - The guest may change a file while the host reads it: contents are not a snapshot.
//   - A regular file that is also linked outside the workspace can be read. A guest
//     cannot make such a link when the workspace is mounted into its sandbox, since
//     links do not cross mounts. Packing leaves such files out, and nothing here
//     writes through one.
//   - Packing opens, without blocking, what a directory lists as a regular file, and
//     looks at it again before it reads. A guest that swaps in a FIFO in between sees it opened
//     and closed.
//   - On a Unix other than Linux a name is inspected first and opened, without
//     blocking, second; a guest that swaps a FIFO in between gets it opened and
//     closed again. A mount point is recognised by its device number there, so a
//     mount of a directory of the same file system is not.
//   - On Linux, /proc must be mounted.
//   - On systems that are not Unix, [Open] fails with [ErrUnsupported].
package workspace
