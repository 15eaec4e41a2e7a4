// Package checkpoint keeps the durable part of a workspace in a [Store] and brings
// it back, in the same workspace or in that of another sandbox on another host.
//
// [Save] records the regular files and directories that globs name. File contents
// are cut into chunks, gathered in packs of some megabytes, and a pack is stored under the
// hash of its bytes; a manifest under the checkpoint's key lists the files and says
// where their chunks are. Saving again under the same key reads only files
// whose size, modification time, change time or inode differ from the last time, and
// stores only chunks that are new. The manifest is written last, so an interrupted
// Save leaves the previous checkpoint as it was.
//
// Whatever a guest left behind is handled as package workspace promises: no link is
// followed, nothing outside is read or written, and what is left out is reported.
//
// # What is not promised
//
//   - A checkpoint of a running guest is no snapshot. Take it between runs.
//   - A guest cannot set a change time, so it cannot hide a write, with one exception: a
//     write through a shared memory mapping that was dirty while Save looked need not
//     change any time. Set [SaveOptions.Full] for a guest that was running during the last Save.
//   - The store is trusted. Packs are checked against their hash, against accidents.
//   - Links, special files, owners and extended attributes are not kept.
//   - Save keeps about 300 bytes in memory per file, for the manifest.
package checkpoint
