"""numpy and pandas, with the threads and the memory placement of their linear algebra."""

import os
import tempfile

import numpy as np
import pandas as pd

a = np.random.default_rng(0).random((400, 400))
assert np.allclose(np.linalg.inv(a) @ a, np.eye(400), atol=1e-6)
frame = pd.DataFrame({"k": list("abab") * 1000, "v": range(4000)})
assert frame.groupby("k").v.sum().to_dict() == {"a": 3998000, "b": 4000000}
with tempfile.TemporaryDirectory() as d:
    path = os.path.join(d, "f.csv")
    frame.to_csv(path)
    assert len(pd.read_csv(path)) == 4000
    np.save(os.path.join(d, "a.npy"), a)
    assert np.load(os.path.join(d, "a.npy"), mmap_mode="r").shape == (400, 400)
print("fine")
