"""Basis-aware sampling: keep an improbable token if the model's output layer proves that it can occur.

The test asks: given that the model is optimal for its output matrix W, can the true probability of this token be
zero? Every answer has a certificate, which is checked here in rational arithmetic, without the solver
(Finlayson et al. 2024, papers.bib: finlayson2024closing).
"""

import unspool as us
from unspool.basis import BasisTest

TAU = 0.05

model = us.load("bible")
test = BasisTest(model.output_matrix, rank=20)
step, _ = model.start([model.tokenizer.encode("In the beginning God created the")])
p = step.logp_NV[0].exp()
for token in p.topk(12).indices.tolist():
    verdict = test.accepts(p, token, tau=TAU)
    if verdict.certificate is not None:
        assert test.verify(verdict.certificate, p, TAU)
    kept = "above the threshold" if p[token] >= TAU else "accepted" if verdict.accepted else "rejected"
    print(f"{model.tokenizer.decode([token])!r:12} p = {p[token]:.4f}  {kept}")

out = us.generate(model, "In the beginning", us.Sample(us.BasisAware(TAU)), max_new_tokens=20, seed=1)
print(out.text)
print(out.stats)
