// Command stalefs mounts a folder a second time, as a host sees it through a network file system whose clock differs:
// the kernel keeps names and attributes for 30 s, and all times are later.
//
//	stalefs FOLDER MOUNTPOINT DURATION
package main

import (
	"context"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("want FOLDER MOUNTPOINT DURATION")
	}
	later, err := time.ParseDuration(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	root := &fs.LoopbackRoot{Path: os.Args[1]}
	root.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{fs.LoopbackNode{RootData: r}, int64(later / time.Second)}
	}
	root.RootNode = root.NewNode(root, nil, "", nil)
	cached := 30 * time.Second
	server, err := fs.Mount(os.Args[2], root.RootNode, &fs.Options{AttrTimeout: &cached, EntryTimeout: &cached,
		NegativeTimeout: &cached, MountOptions: fuse.MountOptions{DirectMount: true, AllowOther: true}})
	if err != nil {
		log.Fatal(err)
	}
	server.Wait()
}

// node is a file or folder with later times.
type node struct {
	fs.LoopbackNode
	later int64 // seconds
}

func (n *node) shift(a *fuse.Attr) {
	for _, t := range []*uint64{&a.Atime, &a.Mtime, &a.Ctime} {
		*t = uint64(int64(*t) + n.later)
	}
}

func (n *node) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := n.LoopbackNode.Getattr(ctx, f, out)
	n.shift(&out.Attr)
	return errno
}

func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if _, given := in.GetMTime(); given && in.Valid&fuse.FATTR_MTIME_NOW == 0 {
		in.Mtime = uint64(int64(in.Mtime) - n.later)
	}
	errno := n.LoopbackNode.Setattr(ctx, f, in, out)
	n.shift(&out.Attr)
	return errno
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	child, errno := n.LoopbackNode.Lookup(ctx, name, out)
	n.shift(&out.Attr)
	return child, errno
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (
	*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	child, f, fuseFlags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	n.shift(&out.Attr)
	return child, f, fuseFlags, errno
}
