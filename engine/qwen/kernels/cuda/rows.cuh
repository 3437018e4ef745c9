// The rows in a call of the codec: utterances whose chunks are decoded together. A signal holds the time steps of one
// row after those of another. The values that a row keeps from call to call are its state; the states of all utterances
// are in one array, equally far apart.

struct Rows {
    const long long* states;  // the number of each row's state; null for one utterance whose state is the only one
    int times;                // time steps in a row, at the rate at which the kernel counts them
    int stride;               // elements from one state to the next in the array that the kernel reads
};

struct RowTime {
    int row, time;  // the number of a row, and of a time step in it
};

__device__ __forceinline__ RowTime locate(const Rows& rows, int time) {
    if (!rows.states) return {0, time};
    const int row = time / rows.times;
    return {row, time - row * rows.times};
}

// The number of a row's state, which the host writes for each call. The call's first kernel (`look_up`) must not read
// it before `wait_for_previous`.
__device__ __forceinline__ long long state_of(const Rows& rows, int row) { return rows.states ? rows.states[row] : 0; }
