// New positions of a cache: one thread per element of the result.
//
// Declared by cache.rs: fresh, starts, y, bounded(halves), old(index); parameters.count (elements), .lists (of a row of the
// batch), .run (elements of a position), .own, .added and .made (positions of the cache, of what is new, and of the result).

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + thread;
    if index >= parameters.count {
        return;
    }
    let feature = index % parameters.run;
    let position = index / parameters.run % parameters.made;
    let list = index / parameters.run / parameters.made;
    let latest = i32(parameters.made - parameters.added);
    let start = u32(clamp(bounded(starts[list / parameters.lists]), 0, latest));
    if position >= start && position - start < parameters.added {
        y[index] = fresh[(list * parameters.added + position - start) * parameters.run + feature];
    } else if position < parameters.own {
        y[index] = old((list * parameters.own + position) * parameters.run + feature);
    } else {
        y[index] = 0.0;
    }
}
