package failpoint

// Point is a step at which the daemon can be made to fail. Its name is that of an
// operation and of what has just been done.
type Point string

// The points of each operation, in the order in which it passes them.
const (
	// StoreBegin is before a transaction that writes, StoreCommit at its end, before
	// it counts, StoreCommitted when it is on the disk. All writes pass them.
	StoreBegin     Point = "store.begin"
	StoreCommit    Point = "store.commit"
	StoreCommitted Point = "store.committed"

	CreateRecorded Point = "create.recorded" // in the store; nothing is made
	CreateImage    Point = "create.image"    // its image is locked
	CreateVolumes  Point = "create.volumes"  // its volumes are held and mounted, if it has any
	CreateBox      Point = "create.box"      // the back end's directory and record are there
	EngineGroup    Point = "engine.group"    // control groups are there, also in a start
	EngineBooted   Point = "engine.booted"   // the process is there and no record names it, also in a start
	CreateCreated  Point = "create.created"  // the back end has recorded it; the agent does not run
	CreateAgent    Point = "create.agent"    // the agent runs and has no key
	CreateMade     Point = "create.made"     // commands can run in it; the store says that it is being made
	CreateRunning  Point = "create.running"  // the store says that it runs; nobody was told

	StopRecorded Point = "stop.recorded" // the store says that it is being stopped
	StopKilled   Point = "stop.killed"   // no process but the agent is left
	StopWritten  Point = "stop.written"  // the save is written, and nothing vouches for it
	StopSaved    Point = "stop.saved"    // the save is on the disk; the record names the last one
	StopSealed   Point = "stop.sealed"   // the record names the save; the process is still there
	StopFreed    Point = "stop.freed"    // nothing runs; the store says that it is being stopped
	StopStopped  Point = "stop.stopped"  // the store says that it is stopped; nobody was told

	StartRecorded Point = "start.recorded" // the store says that it is being started
	StartBegun    Point = "start.begun"    // so does the back end's record
	StartRestored Point = "start.restored" // the files are back
	StartKeyed    Point = "start.keyed"    // the agent has its key
	StartApplied  Point = "start.applied"  // the attributes of the files are back
	StartRan      Point = "start.ran"      // commands can run in it; the store says that it is being started
	StartRunning  Point = "start.running"  // the store says that it runs; nobody was told

	DestroyRecorded Point = "destroy.recorded" // the store says that it goes
	EngineKilled    Point = "engine.killed"    // the process is dead; groups and state are there, also in a stop
	DestroyCleared  Point = "destroy.cleared"  // its directory alone is left
	DestroyRemoved  Point = "destroy.removed"  // nothing is left on the host
	DestroyReleased Point = "destroy.released" // its volumes are free
	DestroyBuried   Point = "destroy.buried"   // the store has the tombstone; nobody was told

	ExecBegin   Point = "exec.begin"   // the agent knows nothing of it
	ExecStarted Point = "exec.started" // it runs; nobody was told its id
	ExecEnded   Point = "exec.ended"   // it has ended; nobody was told how

	UploadBegin Point = "upload.begin" // nothing is sent to the agent
	UploadPart  Point = "upload.part"  // some of it is sent
	UploadSent  Point = "upload.sent"  // the file is there; nobody was told
)

// All are all points.
var All = []Point{
	StoreBegin, StoreCommit, StoreCommitted,
	CreateRecorded, CreateImage, CreateVolumes, CreateBox, EngineGroup, EngineBooted, CreateCreated, CreateAgent, CreateMade, CreateRunning,
	StopRecorded, StopKilled, StopWritten, StopSaved, StopSealed, StopFreed, StopStopped,
	StartRecorded, StartBegun, StartRestored, StartKeyed, StartApplied, StartRan, StartRunning,
	DestroyRecorded, EngineKilled, DestroyCleared, DestroyRemoved, DestroyReleased, DestroyBuried,
	ExecBegin, ExecStarted, ExecEnded,
	UploadBegin, UploadPart, UploadSent,
}
