#!/bin/sh
# A Slurm cluster on this machine, for tests: a controller and nodes of 4 CPUs, 4,000 MB and 2 pretended GPUs each, with
# the partitions main and low (low is preempted by main). It needs root and no systemd.
#
#   bench/slurm.sh install [accounting]  installs Debian's packages (with slurmdbd and MariaDB), downloads go-fuse
#   bench/slurm.sh up FOLDER [N]         starts N nodes (4); SLURM_CONF=FOLDER/slurm.conf then selects the cluster
#   bench/slurm.sh down FOLDER           ends all daemons and jobs
#
# BASE_PORT (16817) is the controller's port; node i has port BASE_PORT+i. SETTINGS are further lines of slurm.conf.
# VARIANT=accounting starts slurmdbd and its database on the two ports after those of the nodes. VARIANT=cgroup limits
# memory and devices of jobs by control groups (version 1). The cluster ends with the process UNTIL, if one is given,
# and removes FOLDER.
set -e
usage() { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 1 ] || usage
[ "$1" = install ] || [ $# -ge 2 ] || usage
base=${BASE_PORT:-16817}
# Control groups outlive their processes.
without_groups() { find /sys/fs/cgroup/*/slurm_n* -depth -type d -exec rmdir {} + 2>/dev/null || true; }

case $1 in
install)
	[ -z "$2" ] || more="slurmdbd mariadb-server"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge $more
	! command -v go >/dev/null || (cd "$(dirname "$0")/../engine/slurm/testdata/stalefs" && go mod download)
	exit ;;
down)
	[ ! -e "$2/pid" ] || kill -9 "$(cat "$2/pid")" 2>/dev/null || true # --kill-child ends the namespace with it
	rm -f "$2/pid"
	[ ! -e "$2/cgroup.conf" ] || without_groups
	exit ;;
up) ;;
*) usage ;;
esac

mkdir -p "$2/state"
box=$(cd "$2" && pwd) nodes=${3:-4} host=$(hostname -s)
umask 077
head -c 128 /dev/urandom >"$box/key"
for i in 0 1; do
	[ -e "$box/gpu$i" ] || mknod "$box/gpu$i" c 240 $i # slurmd requires devices; these have no driver
done
track=linuxproc task=none gather=linux
case $VARIANT in
cgroup)
	track=cgroup task=cgroup gather=cgroup
	printf '%s\n' CgroupPlugin=cgroup/v1 ConstrainRAMSpace=yes ConstrainDevices=yes >"$box/cgroup.conf" ;;
accounting)
	cat >"$box/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$box/munge
DbdHost=localhost
DbdPort=$((base + nodes + 1))
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((base + nodes + 2))
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
PidFile=$box/dbd.pid
LogFile=$box/dbd.log
CONF
	cat >"$box/database" <<START
mariadb-install-db --no-defaults --user=root --datadir=$box/db --skip-test-db >/dev/null
mariadbd --no-defaults --user=root --datadir=$box/db --socket=$box/db.sock --pid-file=$box/db.pid \
	--bind-address=127.0.0.1 --port=$((base + nodes + 2)) --innodb-buffer-pool-size=64M &
until mariadb --no-defaults --socket=$box/db.sock -e "create database slurm; grant all on slurm.* to slurm@'%' \
	identified by 'slurm'"; do sleep 0.2; done
slurmdbd
until sacctmgr -i add cluster box; do sleep 0.2; done
START
	SETTINGS="$SETTINGS
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePass=$box/munge
AccountingStoragePort=$((base + nodes + 1))" ;;
esac
cat >"$box/slurm.conf" <<CONF
ClusterName=box
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$base
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$box/munge
StateSaveLocation=$box/state
SlurmdSpoolDir=$box/%n
SlurmctldPidFile=$box/ctld.pid
SlurmdPidFile=$box/%n/slurmd.pid
SlurmctldLogFile=$box/ctld.log
SlurmdLogFile=$box/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/$track
TaskPlugin=task/$task
JobAcctGatherType=jobacct_gather/$gather
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=2
MinJobAge=5
KillWait=5
MessageTimeout=3
SlurmdTimeout=5
$SETTINGS
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF MaxTime=60
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=2 MaxTime=60
CONF
: >"$box/gres.conf"
for i in $(seq "$nodes"); do
	mkdir -p "$box/n$i"
	echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + i)) CPUs=4 RealMemory=4000 Gres=gpu:2" \
		>>"$box/slurm.conf"
	echo "NodeName=n$i Name=gpu File=$box/gpu[0-1]" >>"$box/gres.conf"
done
cat >"$box/start" <<START
export SLURM_CONF=$box/slurm.conf
munged --force --key-file=$box/key --socket=$box/munge --pid-file=$box/munge.pid --log-file=$box/munge.log \
	--seed-file=$box/seed || exit
[ ! -e $box/database ] || . $box/database
slurmctld -c || exit
for i in \$(seq $nodes); do slurmd -N n\$i; done
while sleep 60; do :; done # the shell is process 1, which must wait for orphans
START
chmod 755 "$box"
unshare --pid --fork --kill-child --mount-proc sh "$box/start" </dev/null >"$box/start.log" 2>&1 &
echo $! >"$box/pid"
[ -z "$UNTIL" ] || { # in the background, since its parent waits for this script only
	pid=$!
	(while kill -0 "$UNTIL" && kill -0 $pid; do sleep 1; done; kill -9 $pid
		[ ! -e "$box/cgroup.conf" ] || without_groups; rm -rf "$box") </dev/null >/dev/null 2>&1 &
}
export SLURM_CONF="$box/slurm.conf"
# A loaded machine may take minutes. If a daemon cannot start, the shell that starts them ends.
end=$(($(date +%s) + 300))
while kill -0 "$(cat "$box/pid")" 2>/dev/null && [ "$(date +%s)" -lt $end ]; do
	[ "$(sinfo -h -o '%t %D' -p main 2>/dev/null)" != "idle $nodes" ] || exit 0
	sleep 0.1
done
why="a daemon could not start"
! kill -0 "$(cat "$box/pid")" 2>/dev/null || why="its nodes are not idle after 5 minutes"
{
	echo "the cluster has not started, since $why; its logs are in $box"
	cat "$box/start.log"
	sinfo
	tail -n 20 "$box/ctld.log"
} >&2 2>&1
exit 1
